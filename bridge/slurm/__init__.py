"""The Slurm end: calls to slurmrestd, each honest about whether it happened, and what the answers mean.

transport.py  carries one request and one answer        token.py    the bridge's token
codec.py      the nouns of the core <-> Slurm's JSON    answers.py  what status, errors and warnings of an answer mean
lists.py      lists with items that cannot be decoded   tls.py   authorities and the client certificate
client.py     one method a call, on top of these
"""
