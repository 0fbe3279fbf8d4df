"""The account that the bridge has in production: its service account, with the rights of its manifests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml

MANIFESTS = Path(__file__).resolve().parent.parent / "manifests"
NAME = "slurm-bridge"


def make(kubectl: Callable[..., str]) -> None:
    """Make the account, with the rights that it has everywhere.  In a namespace it has none more (see `bind`)."""
    base = MANIFESTS / "base"
    kubectl("apply", "-f", str(base / "namespace.yaml"), "-f", str(base / "rbac.yaml"))


def bind(kubectl: Callable[..., str], namespace: str) -> None:
    """Give it the rights of a managed namespace, as docs/install.md does."""
    kubectl("apply", f"--namespace={namespace}", "-f", str(MANIFESTS / "namespace" / "rolebinding.yaml"))


def only_where_bound(kubectl: Callable[..., str]) -> None:
    """Take back what `write_kubeconfig` of other journeys gave in every namespace."""
    kubectl("delete", "--ignore-not-found", "clusterrolebinding", f"{NAME}-namespace")


def write_kubeconfig(kubectl: Callable[..., str], server: str, authority: str, path: Path) -> None:
    """Make the account, with its rights in every namespace, and write a kubeconfig with a token of it, valid for a day.

    kubectl    runs kubectl with these arguments as the administrator, returns what it printed, raises where it failed
    server     URL of the API server; authority: file with the authorities of its certificate
    """
    make(kubectl)
    everywhere = ("clusterrolebinding", f"{NAME}-namespace", f"--clusterrole={NAME}-namespace")
    binding = kubectl("create", *everywhere, f"--serviceaccount={NAME}:{NAME}", "--dry-run=client", "--output=yaml")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:  # what is there already is no error
        file.write(binding)
        file.flush()
        kubectl("apply", "-f", file.name)
    write_kubeconfig_of(NAME, kubectl, server, authority, path)


def of_another(bridge: str) -> str:
    """The manifest of the account of another bridge, which `make` does not make: in a namespace of the bridge's name.

    It has the same rights, in every namespace, and those to a Lease of the bridge's name.  It needs the roles of `make`.
    """
    base = MANIFESTS / "base"
    namespace, *rights = (
        each for name in ("namespace.yaml", "rbac.yaml") for each in yaml.safe_load_all((base / name).read_text())
    )
    namespace["metadata"]["name"] = bridge
    own = [namespace, *(each for each in rights if each["kind"] != "ClusterRole")]
    [everywhere] = (each for each in own if each["kind"] == "ClusterRoleBinding")
    role = everywhere["roleRef"]
    own.append(
        everywhere | {"roleRef": role | {"name": f"{NAME}-namespace"}, "metadata": {"name": f"{NAME}-namespace"}}
    )
    for each in own[1:]:
        if each["metadata"].get("namespace") == NAME:
            each["metadata"]["namespace"] = bridge
        else:
            each["metadata"] = each["metadata"] | {"name": f"{bridge}-{each['metadata']['name']}"}
        for subject in each.get("subjects", ()):
            subject["namespace"] = bridge
        for rule in each.get("rules", ()):
            rule.update({"resourceNames": [bridge]} if "resourceNames" in rule else {})
    return yaml.safe_dump_all(own)


def write_kubeconfig_of(
    account: str, kubectl: Callable[..., str], server: str, authority: str, path: Path, namespace: str = NAME
) -> None:
    """Write a kubeconfig with a token of a service account that is there, in that namespace."""
    token = kubectl("create", "token", account, f"--namespace={namespace}", "--duration=24h").strip()
    path.touch(mode=0o600)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": account}}],
        "current-context": "rig",
    }
    path.write_text(yaml.safe_dump(content))
