"""Finds the API server, its certificate authorities and the credentials, as kubectl does.

The `kubernetes` package reads kubeconfigs and the service account (paths, base64, merged files, TLS, proxies).  Other modules
of bridge/kube/ do what the package does not: messages without secrets (kubeconfig.py), credentials that change
(kept_credentials.py), exec plugins that fail (exec_plugin.py).  Auth providers of a kubeconfig are refused, because the
package renews OIDC tokens without verifying the server that issues them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge.errors import ConfigError
from bridge.kube import kubeconfig as kubeconfigs
from bridge.kube.access import Access, Now
from bridge.kube.kept_credentials import access_by
from bridge.kube.kubeconfig import from_kubeconfig
from bridge.kube.kubernetes_config import ConfigException, Configuration, incluster_config
from bridge.kube.sources import TRY, new_configuration, reason

SERVICE_ACCOUNT = Path(incluster_config.SERVICE_TOKEN_FILENAME).parent  # where the kubelet puts it

_InClusterLoader: Any = incluster_config.InClusterConfigLoader  # carries no types


async def load(
    kubeconfig: str | None = None,
    *,
    context: str = "",
    now: Now = time.monotonic,
    wall: Now = time.time,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """The access to the cluster, from the first of: `kubeconfig` (one path), $KUBECONFIG, ~/.kube/config, service account.

    context   name of a context of the kubeconfig; "": its current context
    now       seconds, for ages
    wall      epoch seconds, for the times at which the credentials of an exec plugin expire

    Raises ConfigError with one sentence.
    """
    if named := path_of(kubeconfig, environ):
        return await from_kubeconfig(named, now, wall, context)
    if context:
        raise ConfigError(f"context {context} cannot be used, because there is no kubeconfig.", TRY)
    if environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
        return await _from_service_account(service_account, now, wall, environ)
    raise ConfigError(
        f"no Kubernetes cluster to talk to: there is no kubeconfig (--kubeconfig, KUBECONFIG, {_at_home(environ)}) and "
        "this is not a pod of a cluster.",
        "Name a kubeconfig with --kubeconfig FILE.",
    )


def path_of(kubeconfig: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The kubeconfig that `load` uses, one path or several; "": there is none."""
    if named := kubeconfig or environ.get("KUBECONFIG"):
        return named
    home = _at_home(environ)
    return str(home) if home.exists() else ""


def namespace_of(kubeconfig: str | None = None, context: str = "") -> str:
    """The namespace that kubectl would use: the context's, or that of the pod in which this runs.  Raises ConfigError."""
    if path := path_of(kubeconfig):
        return kubeconfigs.namespace_of(path, context) or "default"
    in_pod = Path(SERVICE_ACCOUNT) / "namespace"
    return in_pod.read_text(encoding="utf-8").strip() if in_pod.exists() else "default"


def _at_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home()) / ".kube" / "config"


async def _from_service_account(folder: Path, now: Now, wall: Now, environ: Mapping[str, str]) -> Access:
    async def configuration() -> Configuration:
        loader = _InClusterLoader(
            str(folder / "token"), str(folder / "ca.crt"), try_refresh_token=False, environ=environ
        )
        loaded = new_configuration()
        try:
            loader.load_and_set(loaded)
        except (ConfigException, OSError) as error:
            # These texts name files and variables only.
            raise ConfigError(
                f"the pod's service account in {folder} cannot be used: {reason(error)}.",
                "See that its token is mounted (automountServiceAccountToken), or name a kubeconfig with --kubeconfig FILE.",
            ) from None
        return loaded

    return await access_by(configuration, f"the pod's service account in {folder}", (), now, wall)
