"""The rig's Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager, and kwok that plays kubelets.

The API server has TLS, RBAC, the Node authorizer and an audit log.  It has the very address and port of the service
`kubernetes`, so pods reach it as in any cluster although nothing here forwards services.  It calls pods at their own
addresses, also those of a webhook that is named by its Service: it looks up the endpoints itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from . import places, rest
from .daemons import Daemon, start
from .places import Rig
from .shell import output

# Every request, for the benchmarks' counts.  Of writes on pods, their owners, nodes and namespaces also what was sent, and
# the object where nothing else names it: the checker reads from the log the life of each pod, the policy of an installed
# bridge, and which replica leads.
AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, delete, deletecollection]
  resources: [{group: "", resources: [pods]}]
- level: RequestResponse
  verbs: [create]
  resources: [{group: "", resources: [namespaces]}]
- level: RequestResponse
  verbs: [patch, update]
  resources: [{group: "", resources: [pods/resize]}]
- level: Request
  verbs: [create, update, patch]
  resources: [{group: "", resources: [pods, pods/binding, pods/eviction, pods/status, nodes, nodes/status]}]
- level: Request
  verbs: [create, update, patch]
  resources:
  - {group: apps, resources: [daemonsets, deployments, replicasets, statefulsets]}
  - {group: batch, resources: [cronjobs, jobs]}
- level: Request
  verbs: [create, update, patch]
  resources: [{group: "", resources: [configmaps]}, {group: coordination.k8s.io, resources: [leases]}]
  namespaces: [slurm-bridge]
- level: Metadata
"""
# A node's heartbeat is a write.  Some thousand nodes that beat as often as real ones would use up a small machine, so with
# many the beats get rarer, and the controller that misses them more patient.
BEATS_PER_SECOND = 50
LEASE_SECONDS = 40  # kubelet's; renewed four times in it
GRACE_PER_LEASE = 1.25


def up(rig: Rig) -> None:
    """Start it.  Raises RigError."""
    _furnish(rig)
    for daemon in all_daemons(rig):
        start(daemon)


def all_daemons(rig: Rig) -> list[Daemon]:
    """In the order in which they start."""
    options = rig.read_options()
    lease_s = max(LEASE_SECONDS, 4 * (options.kwok + options.slurmd) // BEATS_PER_SECOND)
    etcd = f"http://127.0.0.1:{places.ETCD_PORT}"
    # Pods are refused until their service account is there.
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    return [
        _daemon(rig, "etcd", _etcd(rig, etcd), lambda: rest.listens(places.ETCD_PORT)),
        _daemon(rig, "kube-apiserver", _apiserver(rig, etcd), lambda: _serves(rig)),
        _daemon(rig, "kube-controller-manager", _manager(rig, lease_s), lambda: rest.kubernetes(rig).answers(account)),
        # It listens nowhere; that it works is seen by what it does (nodes.wait_ready).
        _daemon(rig, "kwok", _kwok(rig, lease_s), lambda: True),
    ]


def _etcd(rig: Rig, url: str) -> list[str]:
    return [
        f"--data-dir={rig.kube}/etcd",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
    ]


def _manager(rig: Rig, lease_s: int) -> list[str]:
    """Without the controller that writes an annotation on every node, a hint for kubelets in large clusters."""
    return [
        f"--kubeconfig={rig.kubeconfig}",
        f"--service-account-private-key-file={rig.kube}/sa.key",
        f"--root-ca-file={rig.kube}/certs/apiserver.crt",
        f"--node-monitor-grace-period={lease_s * GRACE_PER_LEASE:.0f}s",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        "--controllers=*,-ttl-controller",
    ]


def _kwok(rig: Rig, lease_s: int) -> list[str]:
    return [
        f"--kubeconfig={rig.kubeconfig}",
        f"--config={places.HERE}/conf/kwok-stages.yaml",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-lease-duration-seconds={lease_s}",
    ]


def write_kubeconfig(rig: Rig, path: Path, impersonate: str = "") -> None:
    """A kubeconfig of the cluster admin, or of a user whom the admin impersonates (a piece of YAML)."""
    bearer = (rig.kube / "admin.token").read_text()
    path.touch(mode=0o600)
    path.write_text(f"""\
apiVersion: v1
kind: Config
clusters:
- name: {rig.name}
  cluster: {{server: "{places.API_SERVER}", certificate-authority: "{rig.kube}/certs/apiserver.crt"}}
users: [{{name: admin, user: {{token: "{bearer}"{impersonate}}}}}]
contexts: [{{name: {rig.name}, context: {{cluster: {rig.name}, user: admin}}}}]
current-context: {rig.name}
""")


def _apiserver(rig: Rig, etcd: str) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=0.0.0.0",
        "--advertise-address=127.0.0.1",
        f"--secure-port={places.API_PORT}",
        f"--cert-dir={rig.kube}/certs",
        f"--token-auth-file={rig.kube}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={rig.kube}/sa.key",
        f"--service-account-signing-key-file={rig.kube}/sa.key",
        f"--audit-policy-file={rig.kube}/audit.yaml",
        f"--audit-log-path={rig.log}/audit.log",
        "--audit-log-maxsize=200",
        "--audit-log-maxbackup=20",
        "--endpoint-reconciler-type=none",
        # Webhooks that name a Service are called at its pods' own addresses, as nothing here forwards a Service's.
        "--enable-aggregator-routing=true",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _serves(rig: Rig) -> bool:
    # Before there is a certificate there is nothing to ask.  It makes its own, and writes the key once that is whole.
    return (rig.kube / "certs/apiserver.key").exists() and rest.kubernetes(rig).answers("/readyz")


def _furnish(rig: Rig) -> None:
    rig.kube.mkdir()
    (rig.kube / "audit.yaml").write_text(AUDIT)
    output("Making the key of service accounts", ["openssl", "genrsa", "-out", rig.kube / "sa.key", "2048"])
    bearer = secrets.token_hex(16)
    for name, content in {"admin.token": bearer, "tokens.csv": f"{bearer},admin,admin,system:masters\n"}.items():
        (rig.kube / name).touch(mode=0o600)
        (rig.kube / name).write_text(content)
    write_kubeconfig(rig, rig.kubeconfig)


def _daemon(rig: Rig, name: str, arguments: list[str], ready: Callable[[], bool]) -> Daemon:
    argv = (str(places.program(name)), *arguments)
    # After its signal a server waits a minute for watches, which nobody ends.
    patience = 3.0 if name == "kube-apiserver" else 30.0
    return Daemon(name, argv, name, rig.log / f"{name}.log", ready, patience=patience)
