"""`slurm-bridge doctor`: all problems that an admin should know of, with what to do about each (O5).

It looks first and judges then, as the bridge does.  `look.py` sends all requests to both clusters, once, and keeps each
result, a failure too; checks are small pure functions over these results, one a table row, and `report.py` prints them.
It continues after a failure: a check that lacks its result is shown as not checked.  It changes nothing.
"""
