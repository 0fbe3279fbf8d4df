"""V1 and V8: the jobs, after each effect of a request."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bridge.simulation.invariants.observed import Observed
from bridge.simulation.invariants.patience import FORMER_JOB_S, FORMER_NAME_S
from bridge.simulation.invariants.unused_grants import UnusedGrants
from bridge.simulation.invariants.violation import Finding
from bridge.simulation.observations import SeenJob
from scheduler import names


@dataclass(frozen=True, slots=True)
class JobStates:
    """Checks the jobs as they are now, and notes grants that end (L3)."""

    seen: Observed
    grants: UnusedGrants

    def findings(self) -> Iterator[Finding]:
        ours = self.seen.ours()
        self.seen.checked["V1"] += len(ours)
        self.seen.checked["V8"] += len(ours)
        running: dict[str, dict[int, SeenJob]] = {}  # workload key to its running jobs; a heterogeneous job counts once
        for job in ours:
            if job.holds and (named := names.parse_job_name(job.name)) is not None:
                running.setdefault(named[1], {})[job.het_id or job.id] = job
        for key, jobs in running.items():
            if len(jobs) > 1 and (count := len(jobs) - self._of_former_users(jobs.values())) > 1:
                newest = jobs[max(jobs)]
                if not self._has_new_name(newest, jobs.values()):
                    yield Finding("V1", key, f"{count} running placeholders of {newest.name}")
        self.grants.note(ours)
        for job in ours:
            home = self.seen.home(job.name)
            if (
                home not in self.seen.users
                or not self.seen.tenants.ever_gave(home, job.user)
                or job.partition not in self.seen.partitions
            ):
                what = f"job {job.id} ({job.name}) of {job.user} in {job.partition}"
                yield Finding("V8", str(job.id), what)

    def _has_new_name(self, newest: SeenJob, jobs: Collection[SeenJob]) -> bool:
        """True if a former process requested all other jobs under another name, and this process may not know them yet (V1).

        The user edited `job-name` meanwhile, and singleton does not hold back a job of another name.
        """
        others = [job for job in jobs if job.serial != newest.serial]
        is_young = self.seen.clock() - max(self.seen.born, self.seen.of_slurm(newest.starts)) < FORMER_NAME_S
        return is_young and all(job.name != newest.name and self.seen.is_inherited(job) for job in others)

    def _of_former_users(self, jobs: Collection[SeenJob]) -> int:
        """How many users of these jobs of one workload count as former users: a former process requested their jobs (V1).

        This process soon ends a job of a user whom the policy gives.  A job of any other user is foreign to it.
        """
        former = {
            job.user
            for job in jobs
            if self.seen.is_inherited(job)
            and not self.seen.tenants.gave_for(FORMER_JOB_S, job.user, self.seen.born, self.seen.clock())
        }
        return min(len(former), len({job.user for job in jobs}) - 1)
