"""A real OpenTelemetry Collector, with the configuration of manifests/tracing and a backend among its exporters."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from integration.clusters import eventually
from integration.readme import ROOT
from integration.rigging import places

MANIFEST = ROOT / "manifests" / "tracing" / "collector.yaml"


class Collector:
    """A Collector that runs.

    endpoint  where the bridge sends its spans
    log       its log
    """

    def __init__(self, process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
        self._process = process
        self.endpoint = endpoint
        self.log = log

    def listens(self) -> bool:
        """True if it takes connections."""
        assert self._process.poll() is None, self.log.read_text()[-2000:]
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", urlsplit(self.endpoint).port)) == 0

    def spans(self) -> int:
        """The number of spans that it has passed on, as its log says."""
        return sum(map(int, re.findall(r'"spans": (\d+)', self.log.read_text())))


@contextmanager
def collector(folder: Path, backend: str) -> Iterator[Collector]:
    """A Collector that sends spans to the backend, until the block ends.  folder: for its configuration and log"""
    settings, _, service = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    config = yaml.safe_load(settings["data"]["config.yaml"])
    # As the comments there say.
    config["exporters"]["otlp_http"] = {"endpoint": backend}
    config["service"]["pipelines"]["traces"]["exporters"].append("otlp_http")
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    log, [port] = folder / "collector.log", service["spec"]["ports"]
    command = (str(places.program("collector")), f"--config={folder}/config.yaml")
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        made = Collector(process, f"http://127.0.0.1:{port['port']}", log)
        try:
            eventually("the Collector listens", made.listens)
            yield made
        finally:
            process.terminate()
