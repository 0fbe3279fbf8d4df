"""Real crashes: pods and jobs come and go while the bridge and the servers of both clusters are killed, frozen and cut off.

`churn` is what users and admins do meanwhile, `faults` what breaks, `line` a connection that can be cut, `rest` what must be
true afterwards.  Every random choice follows from one seed.  `integration/journeys/test_crashes.py` runs it;
`integration/checker` judges it, from the logs.
"""

from __future__ import annotations

import os

# Set by `make torture`: no other suite runs on this machine, so the bridge has to be back sooner.
IS_ALONE = os.environ.get("TORTURE_ALONE") == "1"
