"""The commands of README and docs/install.md for an installation, as written: the bridge schedules from its own pod.

No Docker and no registry is there: `docker build` is buildah's build of the same Dockerfile; `docker push` gives the image to
the node's containerd.  The rig has no kube-scheduler, so the journey binds the bridge's own pod; it has no TLS in front of
slurmrestd, so the settings allow plain HTTP.  All else is as it ships.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiException

from bridge.slurm.token import claims_of
from integration import readme
from integration.clusters import IMAGE, PREFIX, Kube, Slurm, condition, eventually, pod
from integration.documents import lines
from integration.readme import ROOT, Terminal
from integration.rigging import places

pytestmark = pytest.mark.usefixtures("no_bridge")
OWN, SPACE, LATER = "slurm-bridge", "hpc", "lab"  # the first two are names in the documentation
RIG = ROOT / "integration" / "rig"
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
IMAGE_LINES = lines("install.md", "The image")
[NEW_NAME] = re.findall(r"Then write `(newName: \S+)` in `manifests/minimal/kustomization.yaml`", INSTALL)
INSTALLING = [
    *lines("install.md", "Two edits"),
    *lines("install.md", "Apply"),
    *lines("install.md", "Each namespace"),
]
LOOKING = lines("install.md", "Look")
METRICS = lines("install.md", "Metrics")
# Two blocks of commands.  Each writes a kubeconfig: the first with a token of 90 days, the second with a lasting token.
KUBECONFIGS = re.findall(r"^```sh\n(.*?)^```$", INSTALL.split("\n## Outside Kubernetes")[1], re.MULTILINE | re.DOTALL)
[CHECK, AGAIN] = lines("operations.md", "Change the settings")
NEW_TOKEN, WITH_KUSTOMIZE, WITHOUT = lines("operations.md", "Tokens")
# What the Prometheus operator reads, and what it calls that.
OPERATORS_KINDS = {"servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}
# `docker` as install.md calls it.
DOCKER = """#!/bin/sh -eu
case $1 in
    build) [ "$2 $4" = "-t ." ]; image=$3 ;;
    push) image=$2 ;;
esac
built=$({rig} image --repository "${{image%:*}}" --version "${{image##*:}}")
[ "$1" = build ] || {rig} load --name {name} "$built"
"""
FOR_SLURM_ADMINS = [
    *lines("for-slurm-admins.md", "Tokens"),
    *lines("for-slurm-admins.md", "What you see of a placeholder"),
]
ON_THE_KUBELET = {"nodeSelector": {"kubernetes.io/hostname": "x1"}}


@pytest.fixture(scope="module")
def terminal(
    needs_kubelets: None, tmp_path_factory: pytest.TempPathFactory, kube: Kube, slurm: Slurm
) -> Iterator[Terminal]:
    """A copy of the manifests with the edit of the URL, and Slurm's and Kubernetes' own commands."""
    folder = tmp_path_factory.mktemp("installed")
    copied(folder)
    settings = folder / "manifests" / "minimal" / "settings.yaml"
    url = f"http://{places.OWN_ADDRESS}:{places.REST_PORT}\nallow_plain_http: true"
    settings.write_text(settings.read_text().replace("https://slurmrestd.example", url))
    programs = folder / "bin"
    programs.mkdir()
    for name in ("sacct", "scontrol", "squeue"):
        program = programs / name
        on_the_rig = f'exec {RIG} {name} --name {os.environ["RIG_NAME"]} "$@"'
        program.write_text(f"#!/bin/sh\nSLURM_BRIDGE_RIG_CACHE={places.cache()} {on_the_rig}\n")
        program.chmod(0o755)
    docker = programs / "docker"
    rig = f"env SLURM_BRIDGE_RIG_CACHE={places.cache()} {RIG}"
    docker.write_text(DOCKER.format(rig=rig, name=os.environ["RIG_NAME"]))
    docker.chmod(0o755)
    (folder / ".kube").mkdir()
    (folder / ".kube" / "config").symlink_to(kube.kubeconfig)
    kubectl = places.kubectl()
    assert kubectl, "a rig has one"
    path = os.pathsep.join([str(programs), str(Path(kubectl).parent), os.environ["PATH"]])
    opened = Terminal(folder, kubectl, {"HOME": str(folder), "PATH": path}, {"busybox:1.36": IMAGE})
    with image_on_the_nodes(), kube_scheduler(kube):
        yield opened
        opened.close()
        for name in (SPACE, LATER):
            if name in kube.namespaces():
                kube.remove(name)
        eventually("no job is left", lambda: not slurm.live(f"{SPACE}/"))
        opened.types("kubectl delete --ignore-not-found --wait=false -k manifests/minimal")
        eventually("it is gone", lambda: OWN not in kube.namespaces())


@contextmanager
def image_on_the_nodes() -> Iterator[None]:
    built = subprocess.run([RIG, "image"], check=True, capture_output=True, text=True).stdout.split()[-1]
    subprocess.run([RIG, "load", "--name", os.environ["RIG_NAME"], built], check=True)
    yield


@contextmanager
def kube_scheduler(kube: Kube) -> Iterator[None]:
    """Binds pods of the bridge's own namespace to the node that has a kubelet."""
    ended = threading.Event()

    def schedule() -> None:
        while not ended.wait(0.2):
            waiting = kube.core.list_namespaced_pod(OWN, field_selector="spec.nodeName=").items
            for each in waiting:
                target = {"apiVersion": "v1", "kind": "Node", "name": "x1"}
                body = {"metadata": {"name": each.metadata.name}, "target": target}
                try:
                    kube.core.create_namespaced_binding(OWN, body, _preload_content=False)
                except ApiException as error:
                    if error.status not in (404, 409):  # deleted meanwhile
                        raise

    thread = threading.Thread(target=schedule, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def installed(terminal: Terminal) -> None:
    """An admin has typed every line up to the first look at what runs.  How long each line took is printed."""
    assert set(readme.lines_for(__file__)) <= set(INSTALLING), "README's short form is part of the long one"
    took = {line: typed(terminal, line) for line in IMAGE_LINES}
    overlay = terminal.folder / "manifests" / "minimal" / "kustomization.yaml"
    overlay.write_text(overlay.read_text().replace("newName: localhost/slurm-bridge", NEW_NAME))
    took |= {line: typed(terminal, line) for line in INSTALLING}
    print(f"the commands of docs/install.md up to the first look took {sum(took.values()):.0f} s:")
    for line, seconds in took.items():
        print(f"{seconds:6.1f} s  {line}")


def typed(terminal: Terminal, line: str) -> float:
    """Seconds that the line took."""
    began = time.monotonic()
    terminal.types(line)
    return time.monotonic() - began


@pytest.mark.usefixtures("installed")
def test_an_admin_types_every_line_and_a_pod_runs_as_a_slurm_user(terminal: Terminal, kube: Kube, slurm: Slurm) -> None:
    for line in LOOKING:
        if " slurm-bridge doctor" in line:
            assert "\nBoth\n" in terminal.types(line, codes=(0, 1)), "nothing worse than warnings"
        elif " slurm-bridge explain" in line:
            assert "hello" in terminal.types(line)
            [hello] = kube.bound(SPACE)
            assert hello.spec.scheduler_name == "slurm-bridge", "it did not name it"
            job = slurm.job(int(hello.metadata.annotations[PREFIX + "job-id"]))
            assert "RUNNING" in job["job_state"]
            assert (job["user_name"], job["nodes"]) == ("alice", hello.spec.node_name)
        else:
            terminal.types(line)
    eventually("its job has ended with it", lambda: not slurm.live(f"{SPACE}/hello"))
    [image] = [each.image for each in kube.pod(OWN, own_pod(kube)).spec.containers]
    assert f"newName: {image.rpartition(':')[0]}" == NEW_NAME


@pytest.mark.usefixtures("installed")
def test_changed_settings_are_checked_in_the_pod_before_they_are_applied(terminal: Terminal, kube: Kube) -> None:
    """Applied before they were changed, they restart nothing."""
    settings, before = terminal.folder / "manifests" / "minimal" / "settings.yaml", own_pod(kube)
    good = settings.read_text()
    settings.write_text(good + "polcy: {}\n")
    assert "standard input: polcy: unknown key" in terminal.types(CHECK, codes=(2,))
    settings.write_text(good)
    assert "standard input: 1 rule in the policy" in terminal.types(CHECK, codes=(0, 1))
    terminal.types(AGAIN)
    assert own_pod(kube) == before


@pytest.mark.usefixtures("installed")
def test_the_lines_about_metrics_add_what_an_operator_and_grafana_read_and_restart_nothing(
    terminal: Terminal, kube: Kube
) -> None:
    before = own_pod(kube)
    with operators_kinds(terminal):
        for line in METRICS:
            terminal.types(line)
        found = terminal.types(f"kubectl --namespace={OWN} get servicemonitor,prometheusrule,configmap -o name")
        assert {"servicemonitor", "prometheusrule"} == {
            each.partition(".")[0] for each in found.split() if "monitoring" in each
        }
        boards = kube.core.list_namespaced_config_map(OWN, label_selector="grafana_dashboard=1").items
        assert [each.metadata.name for each in boards] == [f"{OWN}-dashboards"]
    assert own_pod(kube) == before


@contextmanager
def operators_kinds(terminal: Terminal) -> Iterator[None]:
    """The API server has the two kinds of the Prometheus operator; definitions of the same names stand for the operator's."""
    file = terminal.folder / "definitions.yaml"
    file.write_text(yaml.safe_dump_all(_definition(*each) for each in OPERATORS_KINDS.items()))
    terminal.types(f"kubectl apply -f {file}")
    terminal.types(f"kubectl wait --for=condition=Established --timeout=90s -f {file}")
    yield
    terminal.types(f"kubectl delete -f {file}")


def _definition(plural: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    group = "monitoring.coreos.com"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def test_every_overlay_is_built_and_a_missing_token_is_reported(terminal: Terminal, tmp_path: Path) -> None:
    copied(tmp_path)
    overlay = tmp_path / "manifests" / "minimal" / "kustomization.yaml"
    assert "token" in terminal.types(f"kubectl kustomize {overlay.parent}", codes=(1,))
    (overlay.parent / "token").write_text("not a token")
    minimal, monitoring = (kinds_of(terminal, tmp_path / "manifests" / name) for name in ("minimal", "monitoring"))
    assert monitoring - minimal == {"ServiceMonitor", "PrometheusRule"}
    overlay.write_text(f"{overlay.read_text()}components: [../before-1.36]\n")
    left_out = minimal - kinds_of(terminal, overlay.parent)
    assert left_out == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}


@pytest.mark.usefixtures("installed")
def test_the_kubeconfigs_for_a_bridge_outside_kubernetes_are_of_its_service_account(terminal: Terminal) -> None:
    tokens = []
    for commands in KUBECONFIGS:
        terminal.types(commands)
        who = terminal.types(
            "kubectl --kubeconfig=kubeconfig auth whoami --output=jsonpath={.status.userInfo.username}"
        )
        assert who == f"system:serviceaccount:{OWN}:slurm-bridge"
        assert terminal.types("kubectl --kubeconfig=kubeconfig auth can-i list pods --all-namespaces") == "yes\n"
        [shown] = yaml.safe_load((terminal.folder / "kubeconfig").read_text())["users"]
        tokens.append(claims_of(shown["user"]["token"]))
    assert [each.exp is None for each in tokens] == [False, True]


@pytest.mark.parametrize("apply", [WITH_KUSTOMIZE, WITHOUT], ids=["kustomize", "secret"])
@pytest.mark.usefixtures("installed")
def test_a_renewed_token_reaches_the_bridge_and_restarts_nothing(terminal: Terminal, kube: Kube, apply: str) -> None:
    before = own_pod(kube)
    terminal.types(NEW_TOKEN)
    terminal.types(apply)
    written = (terminal.folder / "manifests" / "minimal" / "token").read_text()
    mounted = f"kubectl --namespace={OWN} exec deployment/slurm-bridge -- cat /run/secrets/slurm-bridge/token"
    eventually("the pod has it", lambda: terminal.types(mounted) == written)
    assert own_pod(kube) == before
    assert readyz(kube).startswith("ok\n")


@pytest.mark.usefixtures("installed")
def test_what_ships_is_what_the_api_server_takes_without_a_word(terminal: Terminal) -> None:
    said = terminal.types("kubectl apply -k manifests/minimal --dry-run=server")
    assert "Warning" not in said
    assert "deployment.apps/slurm-bridge" in said


@pytest.mark.usefixtures("installed")
def test_a_real_container_runs_where_slurm_granted_it_and_ends_with_its_job(
    terminal: Terminal, kube: Kube, slurm: Slurm
) -> None:
    kube.core.create_namespaced_pod(
        SPACE, pod("train", on="", scheduler="", spec=ON_THE_KUBELET, command="exec sleep 600")
    )
    eventually("it runs", lambda: kube.pod(SPACE, "train").status.phase == "Running")
    [token, *looks] = [terminal.types(line) for line in FOR_SLURM_ADMINS]
    assert token == "", "it is in a file"
    assert [f"{SPACE}/train~" in printed for printed in looks] == [True, True]
    slurm.cancel(int(kube.pod(SPACE, "train").metadata.annotations[PREFIX + "job-id"]))
    eventually("it has ended", lambda: not kube.bound(SPACE))


@pytest.mark.usefixtures("installed")
def test_a_namespace_without_a_role_binding_is_named_and_no_other_waits(terminal: Terminal, kube: Kube) -> None:
    kube.namespace(LATER)
    eventually("it is named", lambda: f"in namespace {LATER}," in readyz(kube))
    assert f"in namespace {SPACE}," not in readyz(kube)
    kube.core.create_namespaced_pod(SPACE, pod("other", on="", spec=ON_THE_KUBELET))
    eventually("others go on", lambda: kube.pod(SPACE, "other").spec.node_name)
    terminal.types(f"kubectl apply --namespace={LATER} -f manifests/namespace/rolebinding.yaml")
    eventually("it is not named any more", lambda: readyz(kube) == "ok\n")


@pytest.mark.usefixtures("installed")
def test_no_client_outside_the_pod_learns_of_pods(kube: Kube) -> None:
    status, answer = kube.raw(
        "GET", f"/api/v1/namespaces/{OWN}/pods/{own_pod(kube)}:8080/proxy/explain?pod=other&namespace={SPACE}"
    )
    assert status == 403, answer


@pytest.mark.usefixtures("installed")
def test_a_killed_bridge_comes_back_and_goes_on(terminal: Terminal, kube: Kube) -> None:
    kube.core.create_namespaced_pod(
        SPACE, pod("stays", on="", cpu="500m", spec=ON_THE_KUBELET, command="exec sleep 600")
    )
    eventually("it runs", lambda: kube.pod(SPACE, "stays").status.phase == "Running")
    before = own_pod(kube)
    kube.core.delete_namespaced_pod(before, OWN)
    eventually("another pod of it is there", lambda: own_pod(kube) not in ("", before))
    terminal.types("kubectl --namespace=slurm-bridge rollout status deployment/slurm-bridge --timeout=60s")
    kube.core.create_namespaced_pod(SPACE, pod("new", on="", cpu="500m", spec=ON_THE_KUBELET))
    eventually("it is bound", lambda: kube.pod(SPACE, "new").spec.node_name)
    assert kube.pod(SPACE, "stays").status.phase == "Running"


def copied(folder: Path) -> None:
    """The manifests, without a token that an earlier run left there."""
    shutil.copytree(ROOT / "manifests", folder / "manifests", symlinks=True, ignore=shutil.ignore_patterns("token"))


def kinds_of(terminal: Terminal, overlay: Path) -> set[str]:
    return {each["kind"] for each in yaml.safe_load_all(terminal.types(f"kubectl kustomize {overlay}"))}


def all_namespaces(kube: Kube) -> set[str]:
    """With those on their way out."""
    return {each.metadata.name for each in kube.core.list_namespace().items}


def own_pod(kube: Kube) -> str:
    """The name of the bridge's pod that is not on its way out; "": there is none."""
    return next((each.metadata.name for each in kube.pods(OWN) if not each.metadata.deletion_timestamp), "")


def ready(kube: Kube) -> list[str]:
    """Names of the bridge's pods that are ready and not on their way out."""
    return [
        each.metadata.name
        for each in kube.core.list_namespaced_pod(OWN, label_selector=f"app.kubernetes.io/name={OWN}").items
        if not each.metadata.deletion_timestamp and (said := condition(each, "Ready")) and said.status == "True"
    ]


def readyz(kube: Kube) -> str:
    """As kubelet asks it, by way of the API server."""
    _, answer = kube.raw("GET", f"/api/v1/namespaces/{OWN}/pods/{own_pod(kube)}:8080/proxy/readyz")
    return answer.decode()
