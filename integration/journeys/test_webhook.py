"""`slurm-bridge webhook` on the real API server, under its own account and with its own certificate.

It runs as a process on this machine, so clientConfig names a URL in the place of the Service; all else is as it ships.  Most
creations are dry runs: the API server asks the webhook all the same, and nothing is kept.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.webhook.certificates import make
from integration import granted, own_account
from integration.bench.audit import Audit
from integration.clusters import IMAGE, Kube, eventually, free_port, kubectl, pod
from tests.patience import PATIENCE_S

MANIFESTS = Path(__file__).parent.parent.parent / "manifests"
SHIPPED = MANIFESTS / "webhook"
OWN, NAME = "slurm-bridge", "slurm-bridge-webhook"
MANAGED, OTHER = "webhook-managed", "webhook-other"
DEFAULT, OURS = "default-scheduler", "slurm-bridge"
SECRET = f"/api/v1/namespaces/{OWN}/secrets/{NAME}"
CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}"
DAYS_S = 86_400.0


class Webhook:
    """`slurm-bridge webhook`, as a process."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.port = free_port()
        self.log = folder / f"webhook-{self.port}.log"
        self._kubeconfig = kubeconfig
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, *arguments: str) -> None:
        """Start it, and wait for nothing."""
        command = [sys.executable, "-m", "bridge", "webhook", "--listen", f"127.0.0.1:{self.port}", *arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, "--kubeconfig", str(self._kubeconfig)], stderr=log)

    def start(self, *arguments: str) -> None:
        self.launch(*arguments)
        eventually("the webhook listens", self._listens_or_gone)

    def _listens_or_gone(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            return bool(self.certificate())
        except OSError:
            return False

    def certificate(self) -> str:
        """The certificate that it shows to a new connection, PEM."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))

    def ends(self) -> int:
        """The exit code of a process that ends by itself."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code; 0 if none runs."""
        if self._process is None or self._process.poll() is not None:
            return 0
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_S)


# --- what is installed ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spaces(kube: Kube) -> Iterator[None]:
    """A managed namespace and another one."""
    for name in (MANAGED, OTHER):
        kube.namespace(name, managed=name == MANAGED)
    yield
    for name in (MANAGED, OTHER):
        kube.remove(name)


@pytest.fixture(scope="module")
def by_policy(kube: Kube, spaces: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The decisions of the API server's own policy about each pod of TABLE, by `intercept`.  The policy is removed then."""
    found: dict[str, dict[str, str]] = {}
    for intercept in ("unnamed", "all"):
        folder = tmp_path_factory.mktemp("policy")
        shutil.copytree(MANIFESTS, folder / "manifests", symlinks=True)
        site, file = folder / "manifests" / "site", folder / "intercept.yaml"
        site.mkdir()
        overlay = {"resources": ["../admission"], "components": ["../intercept-all"] * (intercept == "all")}
        (site / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        rendered = yaml.safe_load_all(kubectl("kustomize", str(site)))
        file.write_text(yaml.safe_dump_all(each for each in rendered if each["kind"].startswith("Mutating")))
        kubectl("apply", "-f", str(file))
        in_force = "names another one" if intercept == "all" else "names no scheduler"
        eventually("the policy is in force", lambda case=in_force: scheduler(kube, case) == OURS)  # type: ignore[misc]
        found[intercept] = {case: scheduler(kube, case) for case in TABLE}
        kubectl("delete", "-f", str(file))
        eventually("the policy is gone", lambda: scheduler(kube, "names no scheduler") == DEFAULT)
    return found


@pytest.fixture(scope="module")
def kubeconfig(kube: Kube, by_policy: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of the webhook's account, with the objects that ship."""
    kubectl("apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    files = [f"--filename={SHIPPED / name}" for name in ("rbac.yaml", "secret.yaml", "own-account.yaml")]
    kubectl("apply", *files)
    path, ends = tmp_path_factory.mktemp("webhook") / "kubeconfig", kube.api.configuration
    own_account.write_kubeconfig_of(NAME, kubectl, ends.host, ends.ssl_ca_cert, path)
    yield path
    kubectl("delete", *files)


@pytest.fixture(scope="module")
def audit(own_rig: None, kubeconfig: Path) -> Audit:
    """The requests to the API server from now on.  This fixture starts before the webhook."""
    return Audit()


@pytest.fixture(scope="module")
def webhook(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """The running webhook, which the API server calls.  Asserts at the end that its log has no traceback and no key."""
    process = Webhook(tmp_path_factory.mktemp("log"), kubeconfig)
    content = yaml.safe_load((SHIPPED / "configuration.yaml").read_text())
    content["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{process.port}/intercept"}
    file = process.log.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(content))
    kubectl("apply", "-f", str(file))
    process.start()
    yield process
    code = process.stop()
    kubectl("delete", "-f", str(file))
    said = process.log.read_text()
    assert code == 0, said
    assert "Traceback" not in said
    assert "PRIVATE" not in said


# --- the decision ---------------------------------------------------------------------------------------------------


def owner(kind: str, *, controller: bool | None) -> list[dict[str, Any]]:
    made = {"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": "1"}
    return [made | ({} if controller is None else {"controller": controller})]


TABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "names no scheduler": (MANAGED, pod("new", scheduler="")),
    "names the default one": (MANAGED, pod("new", scheduler=DEFAULT)),
    "names the bridge": (MANAGED, pod("new")),
    "names another one": (MANAGED, pod("new", scheduler="volcano")),
    "opts out": (MANAGED, pod("new", scheduler="", says={"intercept": "false"})),
    "opts out and names another one": (MANAGED, pod("new", scheduler="volcano", says={"intercept": "false"})),
    "opts in": (MANAGED, pod("new", scheduler="", says={"intercept": "true"})),
    "says something else": (MANAGED, pod("new", scheduler="", says={"intercept": "False"})),
    "has an annotation of the bridge": (MANAGED, pod("new", scheduler="", says={"partition": "gpu"})),
    "is bound": (MANAGED, pod("new", scheduler="", spec={"nodeName": "k1"})),
    "is elsewhere": (OTHER, pod("new", scheduler="")),
    "is elsewhere and names another one": (OTHER, pod("new", scheduler="volcano")),
    **{
        f"is of a {kind}, controller {controller}": (MANAGED, pod("new", scheduler=""))
        for kind in ("DaemonSet", "Job")
        for controller in (True, False, None)
    },
}
for case, (_, made) in TABLE.items():
    if not made["spec"]["schedulerName"]:
        del made["spec"]["schedulerName"]
    if match := re.fullmatch(r"is of a (\w+), controller (\w+)", case):
        controls = {"True": True, "False": False, "None": None}[match[2]]
        made["metadata"]["ownerReferences"] = owner(match[1], controller=controls)


def scheduler(kube: Kube, case: str) -> str:
    """The scheduler that a pod of the table has after admission."""
    namespace, body = TABLE[case]
    status, text = kube.raw("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", json.dumps(body).encode())
    assert status == 201, text
    return str(json.loads(text)["spec"]["schedulerName"])


def test_its_account_uses_every_right_that_it_has_and_needs_no_other(
    audit: Audit, webhook: Webhook, kube: Kube
) -> None:
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)
    rights = granted.rights_of(yaml.safe_load_all((SHIPPED / "rbac.yaml").read_text()))
    assert len(rights) == 4
    user = f"system:serviceaccount:{OWN}:{NAME}"
    eventually("each is used", lambda: granted.judged(rights, granted.requests_of(user, audit.lines())))


def test_the_webhook_decides_as_the_policy_of_newer_api_servers_does(
    kube: Kube, webhook: Webhook, by_policy: Mapping[str, Mapping[str, str]]
) -> None:
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)
    assert {case: scheduler(kube, case) for case in TABLE} == by_policy["unnamed"]
    assert webhook.stop() == 0
    webhook.start("--intercept=all")
    eventually("the API server asks it again", lambda: scheduler(kube, "names another one") == OURS)
    assert {case: scheduler(kube, case) for case in TABLE} == by_policy["all"]
    assert by_policy["all"] != by_policy["unnamed"]
    assert webhook.stop() == 0
    webhook.start()
    eventually("it is as before", lambda: scheduler(kube, "names another one") == "volcano")
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)


def test_pods_of_a_real_daemonset_are_left_alone(kube: Kube, webhook: Webhook) -> None:
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)
    labels = {"app": "agent"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": IMAGE}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    kube.apps.create_namespaced_daemon_set(MANAGED, {"metadata": {"name": "agent"}, "spec": spec})
    try:
        pods = eventually("its pods are there", lambda: kube.pods(MANAGED))
        assert {each.spec.scheduler_name for each in pods} == {DEFAULT}
    finally:
        kube.apps.delete_namespaced_daemon_set("agent", MANAGED)
    eventually("they are gone", lambda: not kube.pods(MANAGED))


# --- the certificate ------------------------------------------------------------------------------------------------


def read(kube: Kube, path: str) -> dict[str, Any]:
    status, text = kube.raw("GET", path)
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def merge(kube: Kube, path: str, content: Mapping[str, Any]) -> None:
    status, text = kube.raw("PATCH", path, json.dumps(content).encode(), "application/merge-patch+json")
    assert status == 200, text


def test_a_certificate_is_renewed_while_pods_are_created_and_two_replicas_agree(
    kube: Kube, webhook: Webhook, kubeconfig: Path, tmp_path: Path
) -> None:
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)
    other = Webhook(tmp_path, kubeconfig)
    other.start()
    try:
        before = webhook.certificate()
        assert other.certificate() == before
        due = make(["127.0.0.1"], time.time() - 61 * DAYS_S)
        data = {"tls.crt": due.pair.certificate, "tls.key": due.pair.key, "ca.crt": due.authority}
        merge(kube, SECRET, {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}})

        def renewed() -> bool:
            assert scheduler(kube, "names no scheduler") == OURS, "no pod is missed meanwhile"
            return before not in (webhook.certificate(), other.certificate())

        eventually("both use another certificate", renewed)
        assert webhook.certificate() == other.certificate()
        kept = base64.b64decode(read(kube, SECRET)["data"]["tls.crt"]).decode()
        assert kept.strip() == webhook.certificate().strip() != due.pair.certificate.decode().strip()
    finally:
        assert other.stop() == 0
    assert "Traceback" not in other.log.read_text()


# --- without it -----------------------------------------------------------------------------------------------------


def test_without_the_webhook_pods_are_created_everywhere_and_it_comes_back(kube: Kube, webhook: Webhook) -> None:
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)
    webhook.stop(signal.SIGKILL)
    for namespace in (MANAGED, OTHER):
        kube.run(namespace, "unasked", scheduler=DEFAULT)
        assert kube.pod(namespace, "unasked").spec.scheduler_name == DEFAULT
        kube.core.delete_namespaced_pod("unasked", namespace)
    webhook.start()
    eventually("the API server trusts what it shows now", lambda: scheduler(kube, "names no scheduler") == OURS)


def test_an_admin_may_choose_that_managed_namespaces_wait_for_the_webhook(kube: Kube, webhook: Webhook) -> None:
    configuration = read(kube, CONFIGURATION)
    [entry] = configuration["webhooks"]
    merge(kube, CONFIGURATION, {"webhooks": [entry | {"failurePolicy": "Fail"}]})
    webhook.stop(signal.SIGKILL)

    def refused() -> str:
        namespace, body = TABLE["names no scheduler"]
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        status, text = kube.raw("POST", path, json.dumps(body).encode())
        return json.loads(text)["message"] if status == 500 else ""

    try:
        assert "pods.intercept.slurm-bridge" in eventually("a pod is refused", refused)
        assert scheduler(kube, "is elsewhere") == DEFAULT
    finally:
        merge(kube, CONFIGURATION, {"webhooks": [entry]})
        webhook.start()
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)


# --- its account ----------------------------------------------------------------------------------------------------


def by_its_account(kube: Kube, path: str, content: Mapping[str, Any]) -> tuple[int, str]:
    """Status and text of a dry run of that write under the name of the webhook's account."""
    account = [("Impersonate-User", f"system:serviceaccount:{OWN}:{NAME}")]
    status, text = kube.raw("PUT", f"{path}?dryRun=All", json.dumps(content).encode(), more=account)
    return status, text.decode()


STOLEN: dict[str, dict[str, Any]] = {
    "goes elsewhere": {"clientConfig": {"url": "https://evil.example/"}},
    "names a Service": {"clientConfig": {"service": {"namespace": OTHER, "name": "evil"}}},
    "asks about everything": {
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "*"}]
    },
    "asks in every namespace": {"namespaceSelector": {}},
    "fails closed": {"failurePolicy": "Fail"},
    "waits long": {"timeoutSeconds": 30},
    "has another name": {"name": "x.y.z"},
}


@pytest.mark.parametrize("attack", STOLEN)
def test_its_account_changes_the_bundle_and_nothing_else(kube: Kube, webhook: Webhook, attack: str) -> None:
    configuration = read(kube, CONFIGURATION)
    [entry] = configuration["webhooks"]
    status, text = by_its_account(kube, CONFIGURATION, configuration | {"webhooks": [entry | STOLEN[attack]]})
    assert status == 403, text
    assert "slurm-bridge webhook changes caBundle of its configuration, nothing else." in text
    status, text = by_its_account(kube, CONFIGURATION, configuration | {"webhooks": [entry, entry | {"name": "x.y.z"}]})
    assert status == 403, text
    unbundled = entry | {"clientConfig": {"url": entry["clientConfig"]["url"]}}
    status, text = by_its_account(kube, CONFIGURATION, configuration | {"webhooks": [unbundled]})
    assert status == 200, text


def test_its_account_reads_no_other_secret_and_no_other_configuration(kube: Kube, webhook: Webhook) -> None:
    account = [("Impersonate-User", f"system:serviceaccount:{OWN}:{NAME}")]
    for path in (
        f"/api/v1/namespaces/{OWN}/secrets",
        f"/api/v1/namespaces/{OWN}/secrets/{OWN}",
        CONFIGURATION.removesuffix(f"/{NAME}"),
        f"/api/v1/namespaces/{MANAGED}/pods",
    ):
        assert kube.raw("GET", path, more=account)[0] == 403, path


# --- mistakes -------------------------------------------------------------------------------------------------------

SPOILED = {
    "Secret": ("role", SECRET, f"may not write the Secret {OWN}/{NAME}: "),
    "configuration": ("clusterrole", CONFIGURATION, f"may not write the MutatingWebhookConfiguration {NAME}: "),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_missing_right_ends_the_process_with_a_sentence(
    kube: Kube, webhook: Webhook, kubeconfig: Path, tmp_path: Path, what: str
) -> None:
    role, path, says = SPOILED[what]
    namespace = [f"--namespace={OWN}"] if role == "role" else []
    assert webhook.stop() == 0
    no_writing = '[{"op": "replace", "path": "/rules/0/verbs", "value": ["get"]}]'
    kubectl("patch", role, NAME, *namespace, "--type=json", f"--patch={no_writing}")
    if what == "Secret":
        merge(kube, path, {"data": None})
    else:
        [entry] = read(kube, path)["webhooks"]
        entry["clientConfig"].pop("caBundle")
        merge(kube, path, {"webhooks": [entry]})
    same = read(kube, path)
    eventually("the right is gone", lambda: by_its_account(kube, path, same)[0] == 403)
    other = Webhook(tmp_path, kubeconfig)
    try:
        other.launch()
        assert other.ends() == 2, other.log.read_text()
        assert says in other.log.read_text().splitlines()[-1]
        assert "Traceback" not in other.log.read_text()
    finally:
        other.stop()
        kubectl("apply", "-f", str(SHIPPED / "rbac.yaml"))
        webhook.start()
    eventually("the API server asks it", lambda: scheduler(kube, "names no scheduler") == OURS)


# --- what ships -----------------------------------------------------------------------------------------------------


@pytest.fixture
def overlay(kube: Kube, tmp_path: Path) -> Path:
    """A copy of manifests/webhook, with a token beside the settings."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    (tmp_path / "manifests" / "minimal" / "token").write_text("not a token")
    return tmp_path / "manifests" / "webhook"


def test_the_overlay_is_what_the_api_server_takes_without_a_word(kubeconfig: Path, overlay: Path) -> None:
    said = kubectl("apply", "-k", str(overlay), "--dry-run=server")
    assert f"mutatingwebhookconfiguration.admissionregistration.k8s.io/{NAME}" in said
    assert f"deployment.apps/{NAME}" in said
    assert "mutatingadmissionpolicy" not in said
    made = {(each["kind"], each["metadata"]["name"]): each for each in built(overlay)}
    images = [made["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["image"] for name in (OWN, NAME)]
    assert images == ["localhost/slurm-bridge:0.1.0"] * 2


def test_the_patch_that_its_comment_names_makes_it_fail(overlay: Path) -> None:
    file = overlay / "kustomization.yaml"
    [patch] = re.findall(r"^#     patches:\n(?:#     .*\n)+", file.read_text(), re.MULTILINE)
    file.write_text(file.read_text() + patch.replace("#     ", ""))
    [configuration] = [each for each in built(overlay) if each["kind"] == "MutatingWebhookConfiguration"]
    assert [each["failurePolicy"] for each in configuration["webhooks"]] == ["Fail"]


def test_the_overlay_for_cert_manager_takes_its_certificate_and_gives_no_rights(overlay: Path) -> None:
    install = (MANIFESTS.parent / "docs" / "install.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", install, re.MULTILINE | re.DOTALL)
    [written] = [each for each in blocks if "certificate.yaml" in each]
    site = overlay.parent / "site"
    site.mkdir()
    (site / "kustomization.yaml").write_text(written)
    certificate = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": NAME}}
    (site / "certificate.yaml").write_text(yaml.safe_dump(certificate))
    made = {(each["kind"], each["metadata"]["name"]): each for each in built(site)}
    of_the_webhook = {kind for kind, name in made if name == NAME}
    assert of_the_webhook == {
        *(
            "Certificate",
            "Deployment",
            "MutatingWebhookConfiguration",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "Service",
        ),
        "ServiceAccount",
    }
    spec = made["Deployment", NAME]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["args"][1:] == ["--tls-cert-file=/tls/tls.crt", "--tls-key-file=/tls/tls.key"]
    assert ("Role", "slurm-bridge-lease") in made, "those of the bridge stay"


def built(overlay: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kubectl("kustomize", str(overlay))))
