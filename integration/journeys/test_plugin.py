"""A tenant with the role `view` of one namespace types `kubectl slurm`: each command does what docs/users.md says, and tells
in a sentence what the tenant may not see."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.clusters import BridgeProcess, Kube, Slurm, eventually
from integration.documents import lines
from integration.plugin import environment, installed
from integration.rigging import places
from tests.patience import PATIENCE_S

Space = Callable[[str], str]
TYPED = lines("users.md", "The plugin")
TOKENS = {"admins": "of-admins-0123456789abcdef", "users": "of-users-0123456789abcdef"}


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@dataclass
class Tenant:
    """A service account that may view one namespace, at a terminal."""

    space: str
    folder: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> Mapping[str, str]:
        return environment(self.folder, self.folder / "kubeconfig", self.more)

    def types(self, line: str, code: int = 0) -> Said:
        """The line, with the real kubectl; never a traceback, and no token."""
        done = subprocess.run(
            ["bash", "-c", line],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        said = Said(done.returncode, done.stdout, done.stderr)
        assert said.code == code, f"{line}: {said}"
        assert "Traceback" not in said.err
        assert not [token for token in TOKENS.values() if token in said.out + said.err]
        return said

    def sees(self, line: str) -> Any:
        """What `line` with -o json says."""
        return json.loads(self.types(f"{line} -o json").out)


@pytest.fixture
def tenant(kube: Kube, space: Space, tmp_path: Path) -> Tenant:
    ns = space("alice")
    kube.core.create_namespaced_service_account(ns, {"metadata": {"name": "tenant"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": ns}
    kube.rbac.create_namespaced_role_binding(
        ns, {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    )
    token = kube.core.create_namespaced_service_account_token("tenant", ns, {"spec": {}}).status.token
    config = yaml.safe_load(Path(kube.kubeconfig).read_text())
    config["users"] = [{"name": "tenant", "user": {"token": token}}]
    [context] = config["contexts"]
    context["context"] |= {"user": "tenant", "namespace": ns}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    (tmp_path / "kubeconfig").chmod(0o600)
    installed(tmp_path)
    kubectl = places.kubectl()
    assert kubectl
    if not (tmp_path / "kubectl").exists():
        (tmp_path / "kubectl").symlink_to(kubectl)
    return Tenant(ns, tmp_path)


@pytest.fixture(scope="module")
def two_tokens(bridge: BridgeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Path]]:
    """The bridge has a token for admins and one for users; their files."""
    folder = tmp_path_factory.mktemp("tokens")
    files = {name: folder / name for name in TOKENS}
    for name, token in TOKENS.items():
        files[name].write_text(token)
    named = {"http_token_file": str(files["admins"]), "http_nodes_token_file": str(files["users"])}
    with bridge.with_settings(**named):
        yield files


@pytest.fixture
def asks(tenant: Tenant, bridge: BridgeProcess, two_tokens: Mapping[str, Path]) -> Tenant:
    """The tenant, with the address of the bridge and the token of users."""
    url = {"SLURM_BRIDGE_URL": f"http://127.0.0.1:{bridge.port}"}
    tenant.more |= url | {"SLURM_BRIDGE_HTTP_TOKEN_FILE": str(two_tokens["users"])}
    return tenant


def a_pod_runs_and_one_waits(kube: Kube, ns: str) -> None:
    kube.run(ns, "runs", gpu=2)
    eventually("it is bound", lambda: kube.bound(ns))
    kube.run(ns, "waits", gpu=1, says={"begin": "now+1hour"})
    eventually("the bridge says why the other waits", lambda: "BeginTime" in kube.said(ns, "waits"))


def test_every_line_of_the_document_is_typed(asks: Tenant, kube: Kube) -> None:
    a_pod_runs_and_one_waits(kube, asks.space)
    kube.run(asks.space, "ended")
    eventually("another is bound", lambda: len(kube.bound(asks.space)) == 2)
    kube.succeed(asks.space, "ended")
    for line in TYPED:
        typed = line.replace("POD", "runs")
        if not line.endswith(" -w"):
            assert len(asks.types(typed).out.splitlines()) > 1, line
            continue
        with subprocess.Popen(typed.split(), env=asks.environment, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            assert watch.stdout.readline().startswith("JOB")
            kube.run(asks.space, "comes")
            assert any("comes" in row for row in watch.stdout)
            watch.terminate()


def test_pods_have_their_jobs_and_say_why_they_wait(tenant: Tenant, kube: Kube, slurm: Slurm) -> None:
    ns = tenant.space
    a_pod_runs_and_one_waits(kube, ns)
    jobs = {job["name"].partition("~")[0].rpartition("/")[2]: job["job_id"] for job in slurm.live(f"{ns}/")}
    seen = {each["pod"]: each for each in tenant.sees("kubectl slurm queue")}
    assert {name: each["job"] for name, each in seen.items()} == jobs
    [node] = [each.spec.node_name for each in kube.bound(ns)]
    assert (seen["runs"]["node"], seen["waits"]["state"]) == (node, "Pending")
    why = tenant.types("kubectl slurm why waits").out
    assert "BeginTime" in why
    assert "SlurmJob" in why, "its events are shown"
    first, *_ = tenant.sees("kubectl slurm trace runs")["spans"]
    assert first["name"] in ("before its job", "until the bind")
    kube.succeed(ns, "runs")
    eventually("it is over", lambda: [each["state"] for each in tenant.sees("kubectl slurm history")] == ["Completed"])


def test_a_tenant_who_may_ask_slurm_sees_what_the_job_costs(tenant: Tenant, kube: Kube, slurm: Slurm) -> None:
    kube.run(tenant.space, "waits", gpu=1, says={"begin": "now+1hour"})
    eventually("the bridge says why it waits", lambda: "BeginTime" in kube.said(tenant.space, "waits"))
    own = Path(slurm.token_file).with_name("alice")
    costs = f"kubectl slurm why waits --slurm-url {slurm.url} --slurm-token-file {own}"
    text = " ".join(tenant.types(costs).out.split())
    [job] = slurm.live(f"{tenant.space}/")
    assert f"What it costs billing {job['cpus']['number']} an hour in partition" in text
    assert "factor 0." in text or "factor 1.00" in text
    assert tenant.sees(costs)["costs"]["terms"]["share"]["user"] == "alice"


def test_what_is_not_the_tenants_is_a_sentence(tenant: Tenant, kube: Kube, space: Space) -> None:
    others = space("bob")
    kube.run(others, "secret", says={"begin": "now+1hour"})
    for line, said in {
        "kubectl slurm queue -A": "you may not read pods in all namespaces: choose one with -n",
        f"kubectl slurm history -n {others}": f"you may not read pods in namespace {others}",
        f"kubectl slurm why {others}/secret": f"you may not read pods in namespace {others}",
        "kubectl slurm trace nobody": f"there is no pod nobody in namespace {tenant.space}",
        "kubectl slurm queue --context nowhere": 'the context "nowhere" is not among its contexts',
        "kubectl slurm nodes --bridge http://127.0.0.1:1": "no slurm-bridge answers at http://127.0.0.1:1",
    }.items():
        output = tenant.types(line, code=2)
        assert said in output.err, line
        assert output.out == ""
    for line in ("explain runs", "explain -f pod.yaml", f"policy show -n {tenant.space}"):
        (tenant.folder / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
        output = tenant.types(f"cd {tenant.folder}; kubectl slurm {line}", code=2)
        assert "needs the settings of the bridge (--config)" in output.err, line
    output = tenant.types(f"cd {tenant.folder}; kubectl slurm doctor; echo $?")
    assert "Slurm" in output.out + output.err


def test_nodes_are_those_of_slurm_and_show_no_pod(asks: Tenant, kube: Kube, slurm: Slurm) -> None:
    a_pod_runs_and_one_waits(kube, asks.space)

    def held() -> dict[str, tuple[int, int, str]]:
        return {each["name"]: (each["alloc_cpus"], each["alloc_memory"], each["gres_used"]) for each in slurm.nodes()}

    def listed() -> Any:
        return {each["name"]: each for each in asks.sees("kubectl slurm nodes")}

    eventually(
        "Slurm's side of each node is that of Slurm",
        lambda: all(
            (there["cpus"]["held"], there["memory_mib"]["held"]) == held()[name][:2]
            for name, there in listed().items()
            if there["slurm_name"]
        ),
    )
    [on] = [each.spec.node_name for each in kube.bound(asks.space)]
    there = listed()[on]
    assert (there["pods"]["bridge"] >= 1, there["kubernetes"]) == (True, "Ready")
    [(kind, gpus)] = there["devices"].items()
    assert f"{kind}:{gpus['held']}(" in held()[on][2]
    assert gpus["free"] == gpus["total"] - gpus["held"]
    text = asks.types("kubectl slurm nodes -o wide").out + asks.types("kubectl slurm nodes -o json").out
    assert not [word for word in (asks.space, "waits", "alice") if word in text]
    free = {each["partition"]: each for each in asks.sees("kubectl slurm free")}
    kinds = [each["devices"].get(kind, {"free": 0}) for each in listed().values() if "gpu" in each["partitions"]]
    assert free["gpu"]["devices"][kind]["free"] == sum(each["free"] for each in kinds)


def test_a_drained_and_a_cordoned_node_are_closed(asks: Tenant, kube: Kube, slurm: Slurm) -> None:
    drained, cordoned, *_ = kube.external_nodes()
    slurm.change_node(drained, "DRAIN", "bad fan")
    kube.core.patch_node(cordoned, {"spec": {"unschedulable": True}})
    try:
        eventually(
            "the bridge has polled the nodes",
            lambda: "bad fan" in asks.types(f"kubectl slurm nodes -N | grep '^{drained} '; true").out,
        )
        rows = {each["name"]: each for each in asks.sees("kubectl slurm nodes")}
        assert (rows[drained]["closed"], rows[drained]["cpus"]["free"]) == ("DRAIN in Slurm", 0)
        assert (rows[cordoned]["kubernetes"], rows[cordoned]["cpus"]["free"]) == ("Ready,SchedulingDisabled", 0)
        assert "1 cordoned in Kubernetes" in asks.types("kubectl slurm free -o wide").out
    finally:
        slurm.change_node(drained, "RESUME")
        kube.core.patch_node(cordoned, {"spec": {"unschedulable": None}})


def test_the_token_of_users_opens_nothing_but_nodes(
    asks: Tenant, bridge: BridgeProcess, two_tokens: Mapping[str, Path]
) -> None:
    asks.more["SLURM_BRIDGE_HTTP_TOKEN_FILE"] = ""
    assert "asks for a token. Name a file" in asks.types("kubectl slurm free", code=2).err
    (asks.folder / "wrong").write_text("x" * 20)
    output = asks.types(f"kubectl slurm free --http-token-file {asks.folder}/wrong", code=2)
    assert "does not accept this token" in output.err
    url = f"http://127.0.0.1:{bridge.port}"
    release = [
        *(sys.executable, "-m", "bridge", "release", "--bridge", url),
        *("--http-token-file", str(two_tokens["users"])),
    ]
    done = subprocess.run(release, capture_output=True, text=True, check=False)
    assert (done.returncode, "http_token_file" in done.stderr) == (2, True), done.stderr


def test_kubectl_and_bash_complete_commands_options_and_pods(tenant: Tenant, kube: Kube) -> None:
    a_pod_runs_and_one_waits(kube, tenant.space)
    assert tenant.types("kubectl __complete slurm why ''").out.splitlines()[:2] == ["runs", "waits"]
    assert tenant.types("kubectl __complete slurm no").out.splitlines()[0] == "nodes"
    assert tenant.types("kubectl __complete slurm queue -n ''").out.splitlines() == [":4"], "it may not list namespaces"
    script = (
        "source <(kubectl-slurm completion bash); COMP_WORDS=(kubectl-slurm free -o ''); COMP_CWORD=3; _kubectl_slurm; "
        'echo "${COMPREPLY[@]}"'
    )
    assert tenant.types(script).out == "json text wide\n"


def test_zsh_completes_commands_and_files(tenant: Tenant) -> None:
    script = """
        autoload -U compinit && compinit -u -D
        source <(kubectl-slurm completion zsh)
        compadd() { shift; print -rl -- "$@" }
        _files() { print files }
        words=(kubectl-slurm free -o '') CURRENT=4 _kubectl_slurm
        words=(kubectl-slurm why --slurm-token-file '') CURRENT=4 _kubectl_slurm
    """
    assert tenant.types(f"zsh -f -c {shlex.quote(script)}").out.split() == ["json", "text", "wide", "files"]
