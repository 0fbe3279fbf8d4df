"""V3 at the arrival of a bind, which only a simulation sees: there a request takes effect later than it is sent."""

from __future__ import annotations

import json
import re

from bridge.simulation.invariants.checks import Invariants
from bridge.simulation.invariants.pod_facts import is_settled


class ArrivalInvariants(Invariants):
    """The invariants, of which V3 is also checked when a bind reaches the API server."""

    def reaches_kube(self, path: str, body: bytes | None, sent_in: int) -> None:
        """A bind takes room when it arrives; the present process cannot have considered the bind of an earlier one."""
        match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/binding", path)
        if match is None or sent_in != self.process:
            return
        sent = json.loads(body or b"{}")
        pod, node = self.pod(match[1], match[2], sent["metadata"]["uid"]), sent["target"]["name"]
        if pod is not None and not is_settled(pod):
            self.judge("V3", lambda: self._to_kube.too_much(pod, node))
