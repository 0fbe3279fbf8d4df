"""The Slurm end: calls to slurmrestd, each honest about whether it happened, and what the answers mean.

transport.py  carries one request and one answer        token.py    who we are to Slurm
codec.py      the nouns of the core <-> Slurm's JSON    answers.py  what status, errors and warnings of an answer mean
lists.py      a list is read though one item of it cannot be   tls.py   whom to trust, and who we are in TLS
client.py     one method a call, on top of these
"""
