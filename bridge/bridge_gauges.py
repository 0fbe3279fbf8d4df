"""Metrics of the process that acts: its loop, its tokens, its outages, and what it could not do.

They are computed at each scrape.  `world_gauges.py` has the metrics of both clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bridge.clock import SlewedClock
from bridge.guard import KINDS
from bridge.loop import Loop
from bridge.policy_file import PolicyFile
from bridge.preflight.rights import RightsMonitor
from bridge.slurm.token import TokenSource
from bridge.slurm.user_tokens import UserTokens
from bridge.telemetry import Telemetry
from bridge.world_gauges import Register, Values
from scheduler.actions import ObjectKind
from scheduler.events import Side
from scheduler.model.anomaly import Anomaly
from scheduler.state.anomalies import missing
from scheduler.state.phase import Phase


class BridgeGauges:
    """Registers the metrics.

    loop             returns the loop of the bridge that runs now
    tokens           the bridge's own Slurm token, and the acting token if there is one
    gauge, counter   register a metric: its name, its help, and what returns its values
    """

    def __init__(
        self,
        loop: Callable[[], Loop],
        tokens: Sequence[TokenSource],
        telemetry: Telemetry,
        clock: Callable[[], float],
        gauge: Register,
        counter: Register,
    ) -> None:
        self._loop = loop
        self._tokens = tokens
        self._telemetry = telemetry
        self._clock = clock
        self._register(gauge, counter)

    def _register(self, gauge: Register, counter: Register) -> None:
        gauge("slurm_bridge_workloads", "workloads by phase", self._by_phase)
        gauge("slurm_bridge_bypassing_pods", "pods that run on nodes of Slurm and have no job", self._bypassing)
        gauge("slurm_bridge_poll_age_seconds", "age of the last answered poll of Slurm", self._poll_age)
        ends = "when the Slurm token ends, of two the first"
        gauge("slurm_bridge_token_expiry_timestamp_seconds", ends, self._expiry)
        ahead = "seconds by which a cluster's clock is ahead of the bridge's"
        gauge("slurm_bridge_clock_ahead_seconds", ahead, self._ahead)
        gauge("slurm_bridge_side_lost", "1 while this side does not answer", self._outages)
        gauge("slurm_bridge_accounting_lost", "1 while slurmdbd does not answer", self._accounting)
        gauge("slurm_bridge_records_waiting", "ended jobs that wait to be recorded in accounting", self._waiting)
        counter("slurm_bridge_records_dropped", "ends that were never recorded in accounting", self._dropped)
        gauge("slurm_bridge_unreadable_jobs", "jobs whose reads fail again and again", self._unreadable)
        rejected = "observations rejected as implausible, by reason"
        counter("slurm_bridge_observations_rejected", rejected, self._rejected)
        held_back = "missing jobs for which no pod is ended until an admin confirms that they are gone"
        gauge("slurm_bridge_jobs_held_back", held_back, self._held_back)
        gauge("slurm_bridge_quarantined", "objects in quarantine, by kind", self._quarantined)
        counter("slurm_bridge_own_errors", "errors of slurm-bridge itself, by what they concern", self._errors)

    def _quarantined(self) -> Values:
        counts = Counter(entry.kind for entry in self._loop().world.quarantine.values())
        return [(counts[kind], {"kind": kind.value}) for kind in ObjectKind]

    def _errors(self) -> Values:
        return [(self._loop().guard.contained[kind], {"kind": kind}) for kind in KINDS]

    def _rejected(self) -> Values:
        counted = {why.value: self._loop().world.rejected[why] for why in Anomaly} | self._telemetry.rejected
        return [(count, {"reason": reason}) for reason, count in counted.items()]

    def _held_back(self) -> Values:
        world = self._loop().world
        proven, others = world.held_back_since is not None, world.hints_held_back_since is not None
        return [(sum(proven if job.proven else others for job in missing(world)), {})]

    def _by_phase(self) -> Values:
        return [(len(self._loop().world.by_phase[phase]), {"phase": phase.value}) for phase in Phase]

    def _unreadable(self) -> Values:
        return [(len(self._loop().world.reads_postponed), {})]

    def _bypassing(self) -> Values:
        return [(len(self._loop().world.bypassing), {})]

    def _poll_age(self) -> Values:
        polled = self._loop().world.polled
        return [] if polled is None else [(self._clock() - polled.ended, {})]

    def _expiry(self) -> Values:
        ends = [at for token in self._tokens if (at := token.expires_at()) is not None]
        return [(min(ends), {})] if ends else []

    def _ahead(self) -> Values:
        clocks = self._loop().world.clocks
        return [(clock.ahead, {"side": side.value}) for side, clock in clocks.items() if clock.is_known]

    def _outages(self) -> Values:
        outages = self._loop().world.outages
        return [(1.0 if side in outages else 0.0, {"side": side.value}) for side in Side]

    def _accounting(self) -> Values:
        return [(0.0 if self._loop().world.accounting_outage is None else 1.0, {})]

    def _waiting(self) -> Values:
        return [(len(self._loop().world.parked["records"]), {})]

    def _dropped(self) -> Values:
        return [(self._loop().world.dropped_records, {})]


def measure_clock(clock: SlewedClock, telemetry: Telemetry) -> None:
    """Register the metric of the difference between the machine's clock and the bridge's."""
    help_text = "seconds by which the machine's clock is ahead of the bridge's, which follows it slowly"
    telemetry.gauge("slurm_bridge_clock_behind_seconds", help_text, lambda: [(clock.behind(), {})])


def measure_lead(leads: Callable[[], bool], telemetry: Telemetry) -> None:
    """Register the metric that shows whether this replica leads.

    It is registered before the clusters have answered: an alert sees a bridge that waits for them only by its value 0.
    """
    says = "1 while this replica leads, or is the only one and has started"
    telemetry.gauge("slurm_bridge_leader", says, lambda: [(float(leads()), {})])


def measure_rights(rights: RightsMonitor, gauge: Register) -> None:
    """Register the metric of managed namespaces in which the bridge lacks rights."""
    help_text = "managed namespaces in which the bridge lacks rights"
    gauge("slurm_bridge_namespaces_lacking_rights", help_text, lambda: [(len(rights.namespaces), {})])


def measure_users(users: UserTokens, gauge: Register) -> None:
    """Register the metric of Slurm users without a token."""
    help_text = "Slurm users whose token was of no use when it was last needed"
    gauge("slurm_bridge_users_without_token", help_text, lambda: [(len(users.unusable), {})])


def measure_policy(file: PolicyFile, gauge: Register) -> None:
    """Register the metric that shows whether the settings file cannot be used."""
    gauge("slurm_bridge_policy_rejected", "1 while the settings file as it stands cannot be used", file.rejected)
