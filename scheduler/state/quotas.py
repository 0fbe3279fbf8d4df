"""Quotas: the jobs that a rule of the policy may have in Slurm, and its submissions per second (I7).

Both are limits of a rule: all namespaces that the rule maps share them.  If the user of the rule is a template, each of its
users has limits of its own.  If a limit is full, a workload waits for its turn in this limit (Pass.free).  So even if many
workloads wait, a pass visits only as many as can act.

A *quota* is the limit of the jobs that count together; its name follows from `Tenant.counts_with`.
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
    """The limits of the policy, and the jobs and tokens that count against them.

    tenant_of  returns the Slurm user and the limits of a pod
    limited    True if a rule has a limit
    counted    True if a rule has a `max_jobs`
    jobs       quota to how many jobs wait and run
    """

    def __init__(self, policy: Policy, tenant_of: Callable[[Pod], Tenant | Refusal]) -> None:
        self._tenant_of = tenant_of
        self._most: dict[str, int] = {}  # quota to its `max_jobs`; entries are made on demand
        self._token_buckets: dict[str, TokenBucket] = {}  # of submissions, by name; entries are made on demand
        self.jobs: Counter[str] = Counter()
        self._counted: dict[str, str] = {}  # workload key to the quota in which it counts
        self.counted = any(tenant.max_jobs is not None for tenant in policy.tenants)
        self.limited = self.counted or any(tenant.max_submit_rate is not None for tenant in policy.tenants)

    def tenant(self, workload: Workload) -> Tenant | None:
        """The tenant whose limits apply to the workload; None: no rule has limits or maps the workload, or it has no pods."""
        if not self.limited or not workload.pods:
            return None
        found = self._tenant_of(workload.pod)
        return None if isinstance(found, Refusal) else found

    def quota(self, workload: Workload) -> str | None:
        """The quota in which a job of the workload would count now; None: its rule has no `max_jobs`."""
        tenant = self.tenant(workload)
        if tenant is None or tenant.max_jobs is None:
            return None
        quota = _JOBS + tenant.counts_with
        self._most[quota] = tenant.max_jobs
        return quota

    def most(self, limit: str) -> int | None:
        """How many jobs of that quota may wait and run at the same time; None: the limit is no quota."""
        return self._most.get(limit)

    def rate(self, workload: Workload) -> str | None:
        """The name of the token bucket of the workload's submissions; None: its rule has no `max_submit_rate`.

        The burst of the bucket is the tokens of one second, at least one token.
        """
        tenant = self.tenant(workload)
        if tenant is None or tenant.max_submit_rate is None:
            return None
        name = _RATE + tenant.counts_with
        if name not in self._token_buckets:
            self._token_buckets[name] = TokenBucket(tenant.max_submit_rate, tenant.max_submit_rate)
        return name

    def token_bucket(self, name: str) -> TokenBucket | None:
        """The token bucket of that name (`rate`); None: there is none of that name."""
        return self._token_buckets.get(name)

    def take_token(self, name: str, at: float) -> None:
        """Take a token from that token bucket (`rate`) for a submission."""
        self._token_buckets[name].take(at, 1)

    def has_one(self, workload: Workload) -> bool:
        """True if the workload counts already in a quota."""
        return workload.key in self._counted

    def counted_in(self) -> Mapping[str, str]:
        """Key of each workload that counts to the quota in which it counts."""
        return self._counted

    def count(self, workload: Workload, candidates: Iterable[Placeholder]) -> None:
        """Count the workload if it has or may have a job; otherwise remove it from the counts.  candidates: its present jobs

        A workload stays in the quota in which it was counted first, even if its pods are gone or their namespace has other
        labels now.  A job that Slurm lost counts while its pods run: its nodes are requested again whatever the limit (S7).
        If another workload had taken its place in the quota, the new job would be one too many.
        """
        asks = workload.in_flight is not None and isinstance(workload.in_flight.action, act.AllocateNow | act.SubmitJob)
        runs = workload.pod_counts.unbound < workload.pod_counts.unfinished
        ends = all(job.ended or (job.denied and not runs) for job in candidates)
        if not asks and workload.job_search is None and ends:
            self.forget(workload)
        elif workload.key not in self._counted and (quota := self.quota(workload)) is not None:
            self._counted[workload.key] = quota
            self.jobs[quota] += 1

    def forget(self, workload: Workload) -> None:
        """Remove the workload from the counts."""
        if (quota := self._counted.pop(workload.key, None)) is not None:
            self.jobs[quota] -= 1

    @staticmethod
    def is_of_policy(limit: str) -> bool:
        """True if the name is the name of a quota or of a token bucket of a policy."""
        return limit.startswith((_JOBS, _RATE))
