"""The commands of README, "Run it from a checkout", and of docs/dev.md, "On your own clusters", as written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
import yaml

from integration import documents, readme
from integration.checker import journal
from integration.clusters import PREFIX, Kube, Slurm, eventually
from integration.readme import ROOT, Lasting, Terminal
from integration.rigging import places

pytestmark = pytest.mark.usefixtures("no_bridge")
SPACE = "hpc"  # in README, and of the demo's simulated Kubernetes
DEMO_SPACE = "slurm-bridge-dev"
CLOCK = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d UTC"
START = rf"; expected start {CLOCK}( on [^,; ]+)?"
WAITS = rf"Waiting in Slurm partition gpu \(\w+: [^)]+\)({START})?[^.]*\. Job \d+, as of {CLOCK}\."


@pytest.fixture
def terminal(tmp_path: Path, kube: Kube, slurm: Slurm) -> Iterator[Terminal]:
    """A folder with the files that README shows, and a home with a kubeconfig where kubectl looks for it."""
    if not os.environ.get("RIG_NAME"):
        pytest.skip("these clusters were given (KUBECONFIG, SLURM_REST): the names in README may be somebody's there")
    kubectl = places.kubectl()
    assert kubectl, "a rig has one"
    settings, pod = readme.example("slurm_url"), readme.example("apiVersion")
    written = yaml.safe_load(settings)
    stands_for = {written["slurm_url"]: slurm.url, written["slurm_token_file"]: slurm.token_file}
    opened = Terminal(tmp_path, kubectl, {"HOME": str(tmp_path)}, stands_for)
    (tmp_path / "manifests").symlink_to(ROOT / "manifests")
    (tmp_path / "settings.yaml").write_text(opened.here(settings))
    (tmp_path / "pod.yaml").write_text(pod)
    journal.policy(written["policy"])
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").symlink_to(kube.kubeconfig)
    yield opened
    if SPACE in kube.namespaces():
        kube.remove(SPACE)
    opened.close()


@pytest.fixture
def demos() -> Iterator[list[Lasting]]:
    """The demos that run; of each, one cluster is simulated."""
    with (
        journal.breaking(
            "V6", f"{SPACE}/*", "they are placeholders of a simulated Kubernetes, and its bridge ends them"
        ),
        journal.breaking("V2", f"{DEMO_SPACE}/*", "its jobs are those of a simulated Slurm"),
    ):
        yield []


def test_a_newcomer_types_every_line_and_the_pod_runs(
    terminal: Terminal, kube: Kube, slurm: Slurm, full: Callable[[], None], demos: list[Lasting]
) -> None:
    """No GPU is free, so the pod waits at first."""
    bridge: list[Lasting] = []
    for line in [*readme.lines_for(__file__), *documents.lines("dev.md", "On your own clusters")]:
        if line.startswith("slurm-bridge run "):
            bridge.append(terminal.begins(line))
            eventually("it is ready", lambda: answers(bridge[0]))
        elif line.startswith("slurm-bridge dev "):
            demos.append(terminal.begins(line))
        elif line.startswith("slurm-bridge doctor "):
            assert "\nBoth\n" in terminal.types(line, codes=(0, 1)), "nothing worse than warnings"
        elif line.startswith("slurm-bridge explain -f "):
            assert "Slurm would accept it: " in terminal.types(line)
        elif line.startswith("slurm-bridge explain "):
            assert re.search(WAITS, " ".join(terminal.types(line).split()))
            full()
            [pod] = eventually("it is bound to the node that has a GPU now", lambda: kube.bound(SPACE))
            assert "RUNNING" in slurm.job(int(pod.metadata.annotations[PREFIX + "job-id"]))["job_state"]
        elif line.startswith("kubectl describe "):
            eventually("its events say why it waits", lambda typed=line: re.search(WAITS, terminal.types(typed)))  # type: ignore[misc]
        else:
            terminal.types(line)

    for demo in demos:
        eventually("it says where to look", lambda each=demo: each.says(r"^http://127\.0\.0\.1:\d+/$"))  # type: ignore[misc]
    eventually("pods of the demo are on real nodes", lambda: kube.bound(DEMO_SPACE))
    kube.remove(SPACE)
    for demo in demos:
        demo.interrupt()
    assert [demo.ends() for demo in demos] == [0, 0]
    assert DEMO_SPACE not in kube.namespaces(), "Ctrl-C deletes what it made"
    eventually("no job is left, of the demo or of the pod", lambda: not slurm.live(f"{SPACE}/"))
    bridge[0].interrupt()
    assert bridge[0].ends() == 0
    assert "Traceback" not in bridge[0].log.read_text()


def answers(bridge: Lasting) -> bool:
    """On the port that README names."""
    bridge.still_runs()
    try:
        return requests.get("http://127.0.0.1:8080/readyz", timeout=5).status_code == 200
    except requests.ConnectionError:
        return False


def test_the_sentence_in_readme_is_one_that_pods_show() -> None:
    sentences = [each.content.strip() for each in readme.blocks() if each.language == "text"]
    assert any(re.fullmatch(WAITS, each) for each in sentences)
