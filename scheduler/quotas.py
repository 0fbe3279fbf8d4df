"""How many jobs a rule of the policy may have in Slurm, and how many submissions a second (BEHAVIOUR I1).

Both are limits of a rule, that is of all namespaces which it maps together.  Each is a lane of its own (view.View.free):
a workload that finds it full waits for its turn in it, so however many wait, no more are looked at than can act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from scheduler import actions as act
from scheduler.policy import Policy, Tenant
from scheduler.rations import Ration
from scheduler.workload import Placeholder, Workload

NOBODYS = -1  # no rule is about it


class Quotas:
    """The limits of the policy, and what is counted against them.

    limited  some rule has a limit
    most     lane to how many jobs may wait and run at a time; jobs: how many there are
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tenants = policy.tenants
        self.most = {_jobs(n): each.max_jobs for n, each in enumerate(self._tenants) if each.max_jobs is not None}
        self.jobs: Counter[str] = Counter()
        self._counted: dict[str, str] = {}  # workload key to the lane in which it counts
        self.limited = bool(self.most) or any(each.max_submit_rate is not None for each in self._tenants)

    def rations(self) -> dict[str, Ration]:
        """The ration of each rule with a `max_submit_rate`, by lane: a second's worth at once, at least one."""
        rates = ((n, each.max_submit_rate) for n, each in enumerate(self._tenants))
        return {_rate(n): Ration(rate, max(1.0, rate)) for n, rate in rates if rate is not None}

    def tenant(self, workload: Workload) -> Tenant | None:
        """The rule whose limits count for the workload; None: no rule maps it."""
        rule = self._rule(workload)
        return None if rule == NOBODYS else self._tenants[rule]

    def lane(self, workload: Workload) -> str | None:
        """The lane in which the workload counts as a job; None: its rule has no `max_jobs`."""
        tenant = self.tenant(workload)
        return None if tenant is None or tenant.max_jobs is None else _jobs(self._rule(workload))

    def rate(self, workload: Workload) -> str | None:
        """The ration of the workload's submissions; None: its rule has no `max_submit_rate`."""
        tenant = self.tenant(workload)
        return None if tenant is None or tenant.max_submit_rate is None else _rate(self._rule(workload))

    def has_one(self, workload: Workload) -> bool:
        """True if the workload counts already: it has a job, or a submission is in flight."""
        return workload.key in self._counted

    def count(self, workload: Workload, mine: Iterable[Placeholder]) -> None:
        """Count the workload, or count it no more, by the jobs that it has now.  mine: its jobs"""
        held = workload.hold is not None and isinstance(workload.hold.action, act.AllocateNow | act.SubmitJob)
        counts = held or workload.look is not None or any(not (job.ended or job.denied) for job in mine)
        lane = self.lane(workload) if counts else None
        if lane is None:
            self.forget(workload)
        elif workload.key not in self._counted:
            self._counted[workload.key] = lane
            self.jobs[lane] += 1

    def forget(self, workload: Workload) -> None:
        """Count the workload no more."""
        if (lane := self._counted.pop(workload.key, None)) is not None:
            self.jobs[lane] -= 1

    def _rule(self, workload: Workload) -> int:
        """Remembered: a pod keeps its namespace and service account.  Of a job whose pods nobody has seen: none yet."""
        if not self.limited or (workload.rule is None and not workload.pods):
            return NOBODYS
        if workload.rule is None:
            pod = workload.pod
            place = self._policy.place(pod.namespace, pod.service_account)
            workload.rule = NOBODYS if place is None else place
        return workload.rule


def _jobs(rule: int) -> str:
    return f"jobs of rule {rule}"


def _rate(rule: int) -> str:
    return f"submissions of rule {rule}"
