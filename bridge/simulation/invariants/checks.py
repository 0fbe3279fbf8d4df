"""All checks together: what is checked when, and what counts as a violation.

A request of the bridge is checked when it is sent (V2, V3, V5, V6, V7), because it may take effect later, when it is no
longer right.  The state of the clusters is checked after each effect (V1, V8), and a while after the last fault (V4, L1, L2,
L3, L4).

If both clusters are simulated, every check sees the true state and counts at once.  If one is real, a check sees the two
clusters as they were at two earlier moments: a violation counts if a second observation shows it, too.

The gang label shows which pods are a gang, and gang-size for the pods of a batch Job.  Groups of other controllers are not
checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.simulation.invariants.at_rest import AtRest
from bridge.simulation.invariants.job_states import JobStates
from bridge.simulation.invariants.kube_requests import KubeRequests
from bridge.simulation.invariants.observed import Observed
from bridge.simulation.invariants.patience import REASON_S, SOON_S
from bridge.simulation.invariants.slurm_requests import SlurmRequests
from bridge.simulation.invariants.unused_grants import UnusedGrants
from bridge.simulation.invariants.violation import Finding, Violation

VIOLATIONS_REMEMBERED = 200


@dataclass(slots=True)
class _Suspect:
    """A request that seems to violate an invariant.  It is judged again at observations that began after the request."""

    invariant: str
    judge: Callable[[], str]
    since: float
    contradicted: bool = False


def _raise(violation: Violation) -> None:
    raise violation


@dataclass(slots=True)
class Invariants(Observed):
    """Checks every request of the bridge, and the state of both clusters afterwards.

    on_broken    called with each violation; by default it is raised
    violations   the violations that were found, the first ones
    """

    on_broken: Callable[[Violation], None] = _raise
    violations: list[Violation] = field(default_factory=list)
    _to_slurm: SlurmRequests = field(init=False)
    _to_kube: KubeRequests = field(init=False)
    _jobs: JobStates = field(init=False)
    _at_rest: AtRest = field(init=False)
    _suspects: list[_Suspect] = field(default_factory=list)
    # Finding to the time of its first observation.
    _open_findings: dict[tuple[str, str], float] = field(default_factory=dict)
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        Observed.__post_init__(self)
        grants = UnusedGrants(self)
        self._to_slurm = SlurmRequests(self, self.judge)
        self._to_kube = KubeRequests(self, self.judge, self._note_violation)
        self._jobs, self._at_rest = JobStates(self, grants), AtRest(self, grants)

    def sent_to_slurm(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Check a request to Slurm when it is sent."""
        self._to_slurm.sent(method, target, headers, body)

    def sent_to_kube(self, method: str, path: str, body: bytes | None) -> None:
        """Check a request to Kubernetes when it is sent."""
        self._to_kube.sent(method, path, body)

    def at_rest(self) -> Iterator[Finding]:
        """The violations of V4, L1, L2, L3 and L4, when faults ended long ago."""
        return self._at_rest.findings()

    def after(self) -> None:
        """Check V1 and V8 by the true state, after something took effect."""
        for finding in self._jobs.findings():
            self._note_violation(finding.invariant, finding.what)

    def check(self, began: float, calm_since: float) -> None:
        """Check the invariants after an observation: a violation counts if a second observation shows it, or if it lasts too
        long.

        began        when the observation began
        calm_since   when the last fault ended; "inf" while there is one
        """
        self.calm_since = calm_since
        self._suspects = [suspect for suspect in self._suspects if self._is_open(suspect, began)]
        now, findings = self.clock(), []
        if not self.exact:
            findings += [(finding, 0.0) for finding in self._jobs.findings()]
        if now >= calm_since:
            findings += [(found, REASON_S if found.invariant == "L1" else SOON_S) for found in self.at_rest()]
        before, self._open_findings = self._open_findings, {}
        for finding, patience_s in findings:
            key = (finding.invariant, finding.about)
            self._open_findings[key] = since = max(before.get(key, now), calm_since if patience_s else 0.0)
            if key in before and now - since >= patience_s and key not in self._reported:
                self._reported.add(key)
                self._note_violation(finding.invariant, finding.what)

    def _is_open(self, suspect: _Suspect, began: float) -> bool:
        """Judge the suspect by an observation that began then.  Returns True if it has to be judged again."""
        if began <= suspect.since:
            return True
        what = suspect.judge()
        if what and suspect.contradicted:
            self._note_violation(suspect.invariant, what)
        again, suspect.contradicted = bool(what) and not suspect.contradicted, True
        return again

    def judge(self, invariant: str, judge: Callable[[], str]) -> bool:
        """Check a request by *judge*, which returns the violation, or "".  Returns True if none is known now."""
        self.checked[invariant] += 1
        if not self.exact:
            self._suspects.append(_Suspect(invariant, judge, self.clock()))
            return True
        what = judge()
        if what:
            self._note_violation(invariant, what)
        return not what

    def _note_violation(self, invariant: str, what: str) -> None:
        violation = Violation(invariant, what, self.clock())
        if len(self.violations) < VIOLATIONS_REMEMBERED:
            self.violations.append(violation)
        self.on_broken(violation)
