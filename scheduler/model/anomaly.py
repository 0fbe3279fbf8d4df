"""Reasons to reject an observation of Slurm as implausible (S7, X5, X6); `scheduler/state/anomalies.py` acts on them."""

from __future__ import annotations

from enum import Enum


class Anomaly(Enum):
    """Why an observation was rejected; rejections are counted by reason."""

    MASS_ABSENCE = "mass absence"
    CAME_BACK = "absent job came back"
    NOT_LISTED = "job that lives is not listed"
    OLD_POLL = "old poll"
    OLD_READ = "old read"
    ID_AGAIN = "id given out again"
    NOT_ITS_USER = "name of ours, user of another"


# An answer came after a newer one, as in every burst: nothing is wrong with Slurm.
OVERTAKEN = frozenset((Anomaly.OLD_POLL, Anomaly.OLD_READ))
