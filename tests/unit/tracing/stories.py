"""Stories whose events are observed as the loop lets telemetry observe them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bridge.telemetry import Telemetry
from bridge.tracing.finished import Finished
from bridge.tracing.otlp import request
from scheduler.actions import Action, Outcome
from scheduler.events import ActionEnded, Event
from scheduler.state.world import World
from scheduler.tuning import Config
from tests.builders import START, Story
from tests.traces import Backend


class _Exporter(SpanExporter):
    """Encodes spans as for a Collector; what cannot be sent fails here."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def export(self, spans: Sequence[Finished]) -> SpanExportResult:  # type: ignore[override]  # as SpanExport sends them
        """See SpanExporter."""
        self._backend.takes(ExportTraceServiceRequest.FromString(request(spans)))
        return SpanExportResult.SUCCESS


class Traced(Story):
    """A story that a process of the bridge lives and traces.  recent: as of Telemetry"""

    def __init__(self, backend: Backend, *, started: float = START, recent: int = 0, **more: Any) -> None:
        self.telemetry = Telemetry(_Exporter(backend), clock=lambda: self.now, recent=recent)
        self.now = started
        super().__init__(started=started, **more)

    def new_world(self, config: Config, started: float, guarded: bool) -> World:
        """One whose events are observed."""
        world = super().new_world(config, started, guarded)
        self._apply = world.apply
        world.apply = self._observed
        return world

    def _observed(self, event: Event) -> None:
        self.now = max(self.now, getattr(event, "at", None) or getattr(event, "ended", None) or self.now)
        if isinstance(event, ActionEnded):
            self.telemetry.on_ended(event, self.world)
        else:
            self.telemetry.on_observed(event, self.world)
        self._apply(event)

    def does(
        self, action: Action, at: float, outcome: Outcome = Outcome.DONE, *, took: float = 0.0, **more: Any
    ) -> None:
        """The action was sent *took* seconds before *at*, when it ended."""
        self.ended(action, outcome, at=at, began=at - took, **more)

    def stops(self, at: float) -> None:
        """The process is stopped, and sends what is left."""
        self.now = at
        self.telemetry.close()
