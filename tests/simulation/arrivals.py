"""V3 at the arrival of a bind, and V7 at the arrival of a cancel.

Only a simulation sees them: there a request takes effect later than it is sent.
"""

from __future__ import annotations

import json
import re
from functools import partial

from bridge.simulation.invariants.checks import Invariants
from bridge.simulation.invariants.pod_facts import full_name, is_finished, is_settled, shown_job


class ArrivalInvariants(Invariants):
    """The invariants, of which V3 is also checked when a bind reaches the API server, and V7 when a cancel reaches Slurm."""

    def reaches_kube(self, path: str, body: bytes | None, sent_in: int) -> None:
        """A bind takes room when it arrives; the present process cannot have considered the bind of an earlier one."""
        match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/binding", path)
        if match is None or sent_in != self.process:
            return
        sent = json.loads(body or b"{}")
        pod, node = self.pod(match[1], match[2], sent["metadata"]["uid"]), sent["target"]["name"]
        if pod is not None and not is_settled(pod):
            self.judge("V3", lambda: self._to_kube.too_much(pod, node))

    def reaches_slurm(self, method: str, target: str, body: bytes, sent: float) -> None:
        """A cancel ends the pods of the job: none of them may have been bound after the cancel was sent (V7)."""
        if method != "DELETE" or not target.endswith("/jobs/"):
            return
        meant = json.loads(body)
        for job_id in map(int, meant["jobs"]):
            job = self.slurm.job(job_id)
            if job is not None and not job.ended and job.name == meant["job_name"]:
                self.judge("V7", partial(self._bound_since, job_id, sent))

    def _bound_since(self, job_id: int, sent: float) -> str:
        """A sentence about a pod whose bind for that job was sent later; "": there is no such pod."""
        for pod in self.pods():
            bound = shown_job(pod) == str(job_id) and pod["spec"].get("nodeName") and not is_finished(pod)
            bind_sent = self.bind_sent.get(pod["metadata"]["uid"], float("-inf"))
            if bound and bind_sent > sent and not pod["metadata"].get("deletionTimestamp"):
                ago = f"{bind_sent - sent:.1f} s"
                return f"{full_name(pod)} was bound for job {job_id} {ago} after a cancel of the job that ends it now"
        return ""
