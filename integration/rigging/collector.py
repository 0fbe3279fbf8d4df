"""An OpenTelemetry Collector, built from its published Go modules, with the components that manifests/tracing names.

The journey about traces sends them through it, with the configuration of manifests/tracing.  The project's own image has more
components, and is made from the same modules by the same steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from . import places
from .build import lock
from .kube_programs import GO, build_missing
from .shell import logged

SOURCE = places.HERE / "conf" / "collector.go"
MODULES = "go.opentelemetry.io/collector"
PARTS = (
    "exporter/debugexporter",
    "exporter/otlphttpexporter",
    "otelcol",
    "processor/batchprocessor",
    "processor/memorylimiterprocessor",
    "receiver/otlpreceiver",
    "service",
)


def build() -> None:
    """Build it if it is not there.  Raises RigError."""
    (places.cache() / "log").mkdir(parents=True, exist_ok=True)
    with lock(places.cache() / "collector.lock", "another build of the Collector is under way"):
        build_missing({places.programs("collector", places.COLLECTOR): _build}, {})


def _build(go: str, env: Mapping[str, str], folder: Path) -> None:
    log = places.cache() / "log" / "collector.log"
    log.unlink(missing_ok=True)
    source = folder / "source"
    source.mkdir()
    shutil.copyfile(SOURCE, source / "main.go")
    wanted = "\n".join(f"\t{MODULES}/{part} v{places.COLLECTOR}" for part in PARTS)
    (source / "go.mod").write_text(f"module collector\n\ngo {GO}\n\nrequire (\n{wanted}\n)\n")
    logged("Downloading the Collector", log, [go, "mod", "tidy"], env=env, cwd=source)
    # Other suites run meanwhile.
    program = folder / "collector"
    build = ["nice", "-n", "10", go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), "."]
    logged("Building the Collector", log, build, env=env, cwd=source)
    shutil.rmtree(source)
