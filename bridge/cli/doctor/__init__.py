"""`slurm-bridge doctor`: all problems that an admin should know of, with what to do about each (O5).

It looks first and judges then, as the bridge does.  `look.py` asks both ends everything, once, and keeps what each question
came to, a failure too; checks are small pure functions over that, one a table row, and `report.py` prints them.  It goes
on after a failure: what could not be looked at for it is said to be not checked.  Nothing is ever changed.
"""
