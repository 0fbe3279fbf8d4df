"""The Slurm end: calls to slurmrestd, each honest about whether it happened, and what the answers mean.

transport.py  carries one request and one answer        token.py    who we are to Slurm
codec.py      the nouns of the core <-> Slurm's JSON    answers.py  what status, errors and warnings of an answer mean
client.py     one method a call, on top of the four
"""
