"""V6 and V8: each request of the bridge to Slurm, checked when it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from bridge.simulation.invariants.observed import Observed
from bridge.simulation.invariants.patience import GIVEN_AGAIN_S
from bridge.simulation.invariants.violation import Judge
from bridge.simulation.observations import Object
from scheduler import names

MAKES_JOBS = ("/job/submit", "/job/allocate")
REQUESTS_REMEMBERED = 200


@dataclass(frozen=True, slots=True)
class SlurmRequests:
    """Checks requests to Slurm.  judge: checks one request (`Invariants.judge`)"""

    seen: Observed
    judge: Judge

    def sent(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Check a request to Slurm: no write on a foreign job as its user (V6), no job of a user outside the policy (V8)."""
        user = headers.get("X-SLURM-USER-NAME", "")
        if method == "POST" and target.endswith(MAKES_JOBS):
            self._makes(json.loads(body), user)
            return
        if method == "DELETE" and target.endswith("/jobs/"):
            meant = json.loads(body)
            for job_id in meant["jobs"]:
                self._touches(method, int(job_id), user, meant["job_name"])
            return
        match = re.search(r"/job/(\d+)", target)
        if method == "GET" or match is None or "/slurmdb/" in target:
            return
        # For a while the bridge need not know that Slurm has given the id of a lost job to another one.
        if self.seen.since_lost_s(int(match[1])) >= GIVEN_AGAIN_S:
            self._touches(method, int(match[1]), user, None)
            if (account := json.loads(body or b"{}").get("account")) is not None:
                self._moves(int(match[1]), user, account)

    def _makes(self, asked: Object, user: str) -> None:
        """Check new jobs of that user (V8)."""
        sent = self.seen.clock()
        for job in asked.get("jobs") or [asked["job"]]:
            self.seen.note(f"makes {job['name']} as {user}, account {job.get('account', '')!r}")
            if self.seen.requested.get((job["name"], user), float("-inf")) < self.seen.born:
                self.seen.requested.pop((job["name"], user), None)  # so that the newest entries are the last
                self.seen.requested[job["name"], user] = sent
            if len(self.seen.requested) > REQUESTS_REMEMBERED:
                del self.seen.requested[next(iter(self.seen.requested))]
            comment = job.get("comment", "")
            self.judge("V8", partial(self._not_given, job["name"], user, job.get("account", ""), sent, comment))

    def _moves(self, job_id: int, user: str, account: str) -> None:
        """Check the change of a waiting job to another account (V8)."""
        sent = self.seen.clock()

        def not_given() -> str:
            job = self.seen.slurm.job(job_id)
            return self._not_given(job.name, user, account, sent) if job is not None and self.seen.is_ours(job) else ""

        self.judge("V8", not_given)

    def _not_given(self, name: str, user: str, account: str, sent: float, comment: str = "") -> str:
        """A sentence if the policy did not allow this user and account in the job's namespace when it was sent."""
        named = names.parse_job_name(name)
        if (
            named is None
            or named[0] != self.seen.cluster
            or self.seen.tenants.gives(self.seen.home(name, comment), user, account, sent)
        ):
            return ""
        return f"{name} is asked for as {user}, account {account or 'by default'}, which the policy does not allow"

    def _touches(self, method: str, job_id: int, user: str, name: str | None) -> None:
        """Check a write on a job (V6).  name: of the job that the request means; None: any job with that id"""
        self.seen.note(f"{method} job {job_id} as {user}")

        def foreign() -> str:
            job = self.seen.slurm.job(job_id)
            ours = job is not None and (self.seen.is_ours(job) or job.serial in self.seen.renamed)
            if job is None or ours or job.user != user or name not in (None, job.name):
                return ""
            return f"{method} of foreign job {job_id} ({job.name} of {job.user})"

        foreign()  # an observer that does not know the job reads it from now on
        self.judge("V6", foreign)
