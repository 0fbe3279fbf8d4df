"""Quotas: the jobs that a rule of the policy may have in Slurm, and its submissions a second (I7).

Both are limits of a rule, that is of all namespaces which it maps together.  If the user of the rule is a template, the
limits apply to each of its users separately.  Each is a limit class of its own (Pass.free): a workload that finds it full
waits for its turn in it, so however many wait, no more are visited than can act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from scheduler import actions as act
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.policy.rules import Policy, Tenant
from scheduler.state.placeholder import Placeholder
from scheduler.state.token_buckets import TokenBucket
from scheduler.state.workload import Workload

_JOBS, _RATE = "jobs of ", "submissions of "


class Quotas:
    """The limits of the policy, and what is counted against them.

    tenant_of  the Slurm user and the limits of a pod
    limited    some rule has a limit; counted: some rule has a `max_jobs`
    jobs       limit class of `max_jobs` to how many jobs wait and run
    """

    def __init__(self, policy: Policy, tenant_of: Callable[[Pod], Tenant | Refusal]) -> None:
        self._policy = policy
        self._tenant_of = tenant_of
        self._token_buckets: dict[str, TokenBucket] = {}  # buckets from which a token was taken
        self.jobs: Counter[str] = Counter()
        self._counted: dict[str, str] = {}  # workload key to the limit class in which it counts
        self.counted = any(each.max_jobs is not None for each in policy.tenants)
        self.limited = self.counted or any(each.max_submit_rate is not None for each in policy.tenants)

    def tenant(self, workload: Workload) -> Tenant | None:
        """The rule whose limits count for the workload; None: no rule maps it, or its pods are not known yet."""
        if not self.limited or not workload.pods:
            return None
        found = self._tenant_of(workload.pod)
        return None if isinstance(found, Refusal) else found

    def limit_class(self, workload: Workload) -> str | None:
        """The limit class in which the workload counts as a job; None: its rule has no `max_jobs`."""
        if (key := self._counted.get(workload.key)) is not None:
            return key
        tenant = self.tenant(workload)
        if tenant is None or tenant.max_jobs is None:
            return None
        return _JOBS + tenant.counts_with

    def most(self, limit_class: str) -> int | None:
        """How many jobs of that limit class may wait and run at a time; None: it is not a limit class of `max_jobs`."""
        if not limit_class.startswith(_JOBS):
            return None
        return self._policy.counted_as(limit_class.removeprefix(_JOBS)).max_jobs

    def rate(self, workload: Workload) -> str | None:
        """The name of the token bucket of the workload's submissions; None: its rule has no `max_submit_rate`."""
        tenant = self.tenant(workload)
        return None if tenant is None or tenant.max_submit_rate is None else _RATE + tenant.counts_with

    def token_bucket(self, name: str) -> TokenBucket | None:
        """The token bucket of that name, full if no token was ever taken from it; None: it is not one of `max_submit_rate`.

        Its burst is the tokens of one second, at least one.
        """
        if not name.startswith(_RATE):
            return None
        if (known := self._token_buckets.get(name)) is not None:
            return known
        rate = self._policy.counted_as(name.removeprefix(_RATE)).max_submit_rate
        return TokenBucket(rate, rate) if rate is not None else None

    def take_token(self, name: str, at: float) -> None:
        """Take a token from that token bucket (`rate`) for a submission."""
        token_bucket = self.token_bucket(name)
        assert token_bucket is not None, "the name of a token bucket of this policy"
        token_bucket.take(at, 1)
        self._token_buckets[name] = token_bucket

    def has_one(self, workload: Workload) -> bool:
        """True if the workload counts already: it has a job, or a submission is in flight."""
        return workload.key in self._counted

    def counted_in(self) -> Mapping[str, str]:
        """Keys of the workloads that count, to the limit class in which each counts."""
        return self._counted

    def count(self, workload: Workload, candidates: Iterable[Placeholder]) -> None:
        """Count the workload, or remove it from the counts, by its present jobs (*candidates*).

        It counts where it was counted first, though its pods are gone or their namespace has other labels since.  A job that
        Slurm lost counts while its pods run: its nodes are requested again whatever the limit (S7), and the new job would
        be one too many if another workload had taken its place.
        """
        held = workload.in_flight is not None and isinstance(workload.in_flight.action, act.AllocateNow | act.SubmitJob)
        runs = workload.pod_counts.unbound < workload.pod_counts.unfinished
        ends = all(job.ended or (job.denied and not runs) for job in candidates)
        if not held and workload.job_search is None and ends:
            self.forget(workload)
        elif workload.key not in self._counted and (limit_class := self.limit_class(workload)) is not None:
            self._counted[workload.key] = limit_class
            self.jobs[limit_class] += 1

    def forget(self, workload: Workload) -> None:
        """Remove the workload from the counts."""
        if (limit_class := self._counted.pop(workload.key, None)) is not None:
            self.jobs[limit_class] -= 1

    @staticmethod
    def is_limit_class(name: str) -> bool:
        """True if that is the name of a limit class or a token bucket of some policy's limits."""
        return name.startswith((_JOBS, _RATE))
