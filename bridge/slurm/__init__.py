"""The Slurm side: calls to slurmrestd.  The error of each call says whether the call may have had an effect.

transport.py  the interface for one request and its answer  pool.py, connection.py  its implementation over HTTP
codec.py      the scheduler's nouns <-> Slurm's JSON        responses.py  what status, errors and warnings of an answer mean
lists.py      lists with items that cannot be decoded       tls.py        authorities and the client certificate
token.py      the bridge's token                            user_tokens.py  the tokens of Slurm users
client.py     one method for each call                      poll.py       the one poller
"""
