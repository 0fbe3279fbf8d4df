"""The Slurm side: calls to slurmrestd.  The error of each call says whether the call may have had an effect.

requests   transport.py: the interface of one request; pool.py, connection.py: HTTP; tls.py
answers    responses.py: what status, errors and warnings of an answer mean
decoding   codec.py: the scheduler's nouns from Slurm's JSON, with wire.py; lists.py: items that cannot be decoded
encoding   bodies.py
calls      client.py: one method for each call; slurmdbd_lane.py: few of those that need slurmdbd; limits.py, costs.py,
           admin_reads.py
polls      poll.py: the one poller; partition_reads.py: of the partitions, which need slurmdbd
tokens     token.py: the bridge's own; user_tokens.py: of Slurm users
"""
