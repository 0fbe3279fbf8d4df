"""No token of the bridge is in anything that it says: log, metrics, page, traces, errors, pods, jobs, command lines.

The tokens here differ from every other text.  Slurm accepts the first; then the file has a token that Slurm refuses, an
expired one, and a text that is none.  The bearer token of the HTTP interface and that of the Collector are secrets, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml

from bridge.mint.token import minted
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, free_port, slurm_says
from integration.journeys.conftest import POLICY
from integration.otlp import Receiver, receiver
from scheduler.names import parse_job_name
from tests.patience import PATIENCE_S

HOUR_S = 3600
BEARER, COLLECTORS = "canary-bearer-5f0b1c", "canary-collector-77d2a4"
BROKEN = "canary-that-is-no-token-9c31e8"
ENOUGH = 65_536  # bytes of the page's stream that are read
Space = Callable[[str], str]

pytestmark = pytest.mark.usefixtures("own_rig")


class Said:
    """Everything that came out, by where it came out."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, where: str, text: str) -> None:
        self.texts[where] = self.texts.get(where, "") + text

    def places_of(self, secrets: list[str]) -> list[tuple[str, str]]:
        """Where one of these texts is."""
        return [(where, secret) for where, text in self.texts.items() for secret in secrets if secret in text]


class Canaries:
    """The token file, and every secret that was ever in it."""

    def __init__(self, folder: Path) -> None:
        self.key = Path(os.environ["RIG_STATE"], "slurm", "etc", "jwt_hs256.key").read_bytes()
        self.file, self.bearer = folder / "token", folder / "bearer"
        self.secrets = [BEARER, COLLECTORS, BROKEN]
        self._write(self.bearer, BEARER)

    def accepted(self) -> None:
        self._give(minted(self.key, "slurm", int(time.time()), HOUR_S))

    def refused(self) -> None:
        self._give(minted(b"another key of 32 bytes or so ...", "slurm", int(time.time()), HOUR_S))

    def expired(self) -> None:
        self._give(minted(self.key, "slurm", int(time.time()) - 600, 60))

    def broken(self) -> None:
        self._write(self.file, BROKEN)

    def _give(self, token: str) -> None:
        """The token is a secret, and so is each part of it but the head, which tokens share."""
        self.secrets += [token, *token.split(".")[1:]]
        self._write(self.file, token)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        new = path.with_name(f".{path.name}.new")
        new.touch(mode=0o600)
        new.write_text(text + "\n")
        new.replace(path)


@pytest.fixture
def canaries(tmp_path: Path) -> Canaries:
    made = Canaries(tmp_path)
    made.accepted()
    return made


@pytest.fixture
def traces(bridge: BridgeProcess, canaries: Canaries) -> Iterator[Receiver]:
    """The bridge runs with these tokens, and sends its traces here."""
    with (
        receiver() as received,
        bridge.with_environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=received.endpoint,
            OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer {COLLECTORS}",
        ),
        bridge.with_settings(slurm_token_file=str(canaries.file), http_token_file=str(canaries.bearer)),
    ):
        yield received


def test_no_token_is_in_anything_that_comes_out(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, canaries: Canaries, traces: Receiver, tmp_path: Path
) -> None:
    said, ns, options = Said(), space("alice"), settings_file(kube, slurm, bridge, canaries, tmp_path)
    kube.run(ns, "accepted")
    [accepted] = eventually("it runs", lambda: kube.bound(ns))
    key = (parse_job_name(slurm.job(int(accepted.metadata.annotations[PREFIX + "job-id"]))["name"]) or ("", ""))[1]
    listens(said, bridge, ns, options, key)
    for break_it, shown in (
        (canaries.refused, "Slurm"),
        (canaries.expired, str(canaries.file)),
        (canaries.broken, str(canaries.file)),
    ):
        break_it()
        eventually(f"{break_it.__name__}: /readyz says so", lambda shown=shown: shown in bridge.ask("readyz")[1])  # type: ignore[misc]
        kube.run(ns, break_it.__name__)
        listens(said, bridge, ns, options, key)
        said.add("start", start(said, *options, "--http", f"127.0.0.1:{free_port()}"))
    canaries.accepted()
    eventually("all run", lambda: len(kube.bound(ns)) == 4)
    listens(said, bridge, ns, options, key)
    of_both_clusters(said, kube, ns)
    for each in kube.bound(ns):
        kube.succeed(ns, each.metadata.name)
    eventually("their traces are there", lambda: len({span.trace for span in traces.spans if not span.parent}) >= 4)
    said.add("traces", "".join(body.decode(errors="replace") for body in traces.bodies))
    said.add("log", bridge.log.read_text())
    heard_enough(said)
    assert said.places_of(canaries.secrets) == []


def settings_file(kube: Kube, slurm: Slurm, bridge: BridgeProcess, canaries: Canaries, folder: Path) -> list[str]:
    """The options of commands beside the bridge."""
    settings = {
        "slurm_url": slurm.url,
        "slurm_token_file": str(canaries.file),
        "http_token_file": str(canaries.bearer),
        "http": f"127.0.0.1:{bridge.port}",
        "policy": POLICY,
    }
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(settings))
    return ["--config", str(path), "--kubeconfig", kube.kubeconfig]


def listens(said: Said, bridge: BridgeProcess, ns: str, options: list[str], key: str) -> None:
    """Ask all that may be asked.  key: of the workload whose story the page shows"""
    said.add("command lines", command_line(bridge.pid))
    headers = {"Authorization": f"Bearer {BEARER}"}
    for path in (
        "",
        "healthz",
        "readyz",
        "metrics",
        "nodes",
        "wrong",
        f"explain?pod=accepted&namespace={ns}",
        f"workloads/{key}",
        "page.js",
    ):
        for given in ({}, headers, {"Authorization": f"Bearer {BEARER}x"}):
            answer = requests.get(f"http://127.0.0.1:{bridge.port}/{path}", headers=given, timeout=30)
            said.add(f"/{path.removesuffix(key)}", f"{answer.status_code} {answer.headers} {answer.text}")
    with requests.get(f"http://127.0.0.1:{bridge.port}/events", headers=headers, stream=True, timeout=30) as stream:
        said.add("/events", next(stream.iter_content(ENOUGH)).decode(errors="replace"))
    said.add("doctor", command(said, "doctor", *options))
    said.add("explain", command(said, "explain", "accepted", "-n", ns, *options))


def command(said: Said, *arguments: str) -> str:
    """What a command says on both streams; its command line is noted."""
    with running(said, *arguments) as process:
        return process.communicate(timeout=PATIENCE_S)[0]


def start(said: Said, *options: str) -> str:
    """What a bridge says that Slurm refuses, until it has named the token.  It waits for ever, and is stopped."""
    with running(said, "run", *options) as process:
        assert process.stdout is not None
        killed = threading.Timer(PATIENCE_S, process.kill)
        killed.start()
        lines = list[str]()
        for line in process.stdout:
            lines.append(line)
            if "token" in line:
                process.terminate()
        killed.cancel()
        return "".join(lines)


@contextmanager
def running(said: Said, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command; its command line is noted."""
    argv = [sys.executable, "-m", "bridge", *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said.add("command lines", command_line(process.pid))
        yield process


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def of_both_clusters(said: Said, kube: Kube, ns: str) -> None:
    """The pods, their events, and their jobs."""
    for pod in kube.pods(ns):
        said.add("pods", str(pod))
        job = pod.metadata.annotations[PREFIX + "job-id"]
        shown = slurm_says("scontrol", "show", "job", job)
        assert parse_job_name(shown.partition("JobName=")[2].split()[0]) is not None
        said.add("jobs", shown)
    said.add("events", str(kube.core.list_namespaced_event(ns)))


def heard_enough(said: Said) -> None:
    """Each place said what it is there for, so the search was not of nothing."""
    for where, word in {
        "command lines": "-m bridge run",
        "/metrics": "slurm_bridge_call_seconds",
        "/readyz": "token",
        "/": "<html",
        "/events": "accepted",
        "/workloads/": "accepted",
        "doctor": "token",
        "explain": "accepted",
        "start": "token",
        "pods": PREFIX + "job-id",
        "jobs": "traceparent=00-",
        "events": "Slurm",
        "traces": "k8s.pod.name",
        "log": "AllocateNow",
    }.items():
        assert word in said.texts[where], (where, said.texts[where][-500:])
