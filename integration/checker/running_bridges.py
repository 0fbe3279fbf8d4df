"""The bridges that ran, by the audit log: their watches of pods, their leases, and the settings of installed bridges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

BRIDGE = "slurm-bridge"
# The user agent of a bridge; that of a command names no scheduler.
BRIDGES = re.compile(r"slurm-bridge/\S+ \((?P<scheduler>[-a-z0-9.]+)\)")
# How the name of the ConfigMap of an installed bridge begins, and the key in it.
SETTINGS = ("slurm-bridge-settings", "settings.yaml")
Entry = Mapping[str, Any]


@dataclass(slots=True)
class RunningBridges:
    """What the log says about bridges, each known by its schedulerName.

    watches   watches of pods that have ended: from, until
    policies  the policies of installed bridges, and since when: those of their ConfigMaps
    tunings   the setting `tuning` of installed bridges, likewise
    takeovers when a lease of bridges got another holder, or its holder led anew
    """

    watches: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    policies: dict[str, list[tuple[float, Mapping[str, Any]]]] = field(default_factory=dict)
    tunings: dict[str, list[tuple[float, Mapping[str, Any]]]] = field(default_factory=dict)
    takeovers: list[float] = field(default_factory=list)
    _open: dict[str, tuple[str, float]] = field(default_factory=dict)  # scheduler and begin, by the id of the request
    _led: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # holder and begin, by the name of the lease

    def ran(self, end: float) -> dict[str, list[tuple[float, float]]]:
        """When each bridge had an open watch of pods: it ran, and reached the API server.  end: of the log."""
        found = {scheduler: list(intervals) for scheduler, intervals in self.watches.items()}
        for scheduler, at in self._open.values():
            found.setdefault(scheduler, []).append((at, end))
        return found

    def watch(self, entry: Entry, at: float) -> None:
        """A watch of pods by a bridge begins or ends."""
        if entry["stage"] == "ResponseStarted":
            self._open[entry["auditID"]] = scheduler_of(entry), at
        elif entry["auditID"] in self._open:
            scheduler, begin = self._open.pop(entry["auditID"])
            self.watches.setdefault(scheduler, []).append((begin, at))

    def lease_written(self, entry: Entry, at: float) -> None:
        """A replica acquires or renews a lease of bridges."""
        spec = (entry.get("requestObject") or {}).get("spec") or {}
        name, leads = entry["objectRef"].get("name", ""), (spec.get("holderIdentity"), spec.get("acquireTime"))
        if self._led.get(name) != leads:
            self._led[name] = leads
            self.takeovers.append(at)

    def config_map_written(self, entry: Entry, at: float) -> None:
        """A ConfigMap is written; only the settings of a bridge count."""
        sent, (name, key) = entry.get("requestObject") or {}, SETTINGS
        shown = entry["objectRef"].get("name") or (sent.get("metadata") or {}).get("name") or ""
        text = (sent.get("data") or {}).get(key)
        if entry["verb"] in ("create", "update", "patch") and shown.startswith(name) and text:
            settings = yaml.safe_load(text)
            scheduler = settings.get("scheduler_name", BRIDGE)
            self.policies.setdefault(scheduler, []).append((at, settings.get("policy") or {}))
            self.tunings.setdefault(scheduler, []).append((at, settings.get("tuning") or {}))


def scheduler_of(entry: Entry) -> str:
    """The schedulerName of the bridge that sent the request; "": no bridge did."""
    found = BRIDGES.fullmatch(entry.get("userAgent", ""))
    return found["scheduler"] if found else ""
