"""`slurm-bridge doctor`: what an admin would want to know, told at once, and what to do about it (O5).

It looks first and judges then, as the bridge does.  `look.py` asks both ends everything, once, and keeps what each question
came to, a failure too; checks are small pure functions over that, one a table row, and `report.py` prints them.  It goes
on after a failure: what could not be looked at for it is said to be not checked.  Nothing is ever changed.
"""
