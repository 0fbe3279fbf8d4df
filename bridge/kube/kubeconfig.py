"""A kubeconfig, checked: its current context, its cluster and its user.

The `kubernetes` package reads the entries (paths, base64).  Its error texts quote the user entry and its token.  So an error
is one sentence of this module, which names the file and what to do, and holds no secret.

The files are read again once a minute (kept_credentials.py), by a thread: 100 contexts take a quarter of a second.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from bridge.errors import ConfigError
from bridge.kube.access import Access, Headers, Now
from bridge.kube.exec_plugin import ExecPlugin
from bridge.kube.kept_credentials import access_by
from bridge.kube.kubernetes_config import ConfigException, Configuration, kube_config
from bridge.kube.sources import TRY, file_and_reason, new_configuration, reason

POINT = "Point --kubeconfig or KUBECONFIG at one."
CHOOSE = "Choose one of its contexts: kubectl config use-context NAME"
USE_PLUGIN = "Use an exec plugin instead (https://kubernetes.io/docs/reference/access-authn-authz/authentication/)."

PLURALS = ("clusters", "contexts", "users")
Files = dict[str, dict[str, Any]]  # path to content

# The package's classes carry no types.
_KubeConfigLoader: Any = kube_config.KubeConfigLoader
_ConfigNode: Any = kube_config.ConfigNode


async def from_kubeconfig(named: str, now: Now, wall: Now, chosen: str = "") -> Access:
    """The API server of a context.  Raises ConfigError.

    named    one path or several, as KUBECONFIG
    chosen   the context; "": the current one
    """
    user, context, where = _checked_user(_files(named), named, chosen)
    impersonate = _impersonation(user, where)
    plugin = ExecPlugin(user["exec"], where, now, wall) if isinstance(user.get("exec"), dict) else None

    async def configuration() -> Configuration:
        files = await asyncio.to_thread(_files, named)
        user, _, _ = _checked_user(files, named, context)  # it may have been rewritten
        loaded = new_configuration()
        try:
            merged = _merged(files)
            for entry in merged.value["users"]:
                # The bridge runs the plugin itself: with a failing plugin, the package sends no credentials.
                entry.value["user"].pop("exec", None)
            await _KubeConfigLoader(merged, active_context=context, config_base_path=None).load_and_set(loaded)
        except ConfigException as error:
            # Only the text about a missing file is known to quote no secret.
            missing = str(error).partition("File does not exists: ")[2]
            raise ConfigError(f"{where}: {f'no such file: {missing}' if missing else 'cannot be used'}.", TRY) from None
        except OSError as error:
            raise ConfigError(f"{where}: {file_and_reason(error)}.", TRY) from None
        except (LookupError, TypeError, ValueError, AttributeError):
            raise ConfigError(f"{where}: cannot be used, because of one of its entries.", TRY) from None
        if user.keys() & {"token", "tokenFile"} and not loaded.api_key.get("BearerToken") and not loaded.cert_file:
            raise ConfigError(f"{where}: its token is empty.", TRY)
        return loaded

    return await access_by(configuration, where, impersonate, now, wall, plugin)


def _checked_user(files: Files, named: str, chosen: str) -> tuple[dict[str, Any], str, str]:
    """The user entry of a context, the context's name, and what to call the whole in messages.  Raises ConfigError.

    chosen   the context; "": the current one
    """
    current, context = _checked_context(files, named, chosen)
    cluster = _entry(files, "clusters", str(context.get("cluster")), "cluster")
    if cluster is None or not cluster.get("server"):
        raise ConfigError(f'kubeconfig {named}: context "{current}" names no cluster that has a server.', CHOOSE)
    _check_address(cluster, f'kubeconfig {named}, context "{current}"')
    user_name = context.get("user")
    user = _entry(files, "users", str(user_name), "user") if user_name else {}
    if user is None:
        problem = f'kubeconfig {named}: context "{current}" names the user "{user_name}", which is not in it.'
        raise ConfigError(problem, CHOOSE)
    where = f'kubeconfig {named}, context "{current}"'
    if "auth-provider" in user:
        raise ConfigError(f"{where}: its user has an auth-provider, which is not supported.", USE_PLUGIN)
    return user, current, where


def namespace_of(named: str, chosen: str = "") -> str:
    """The namespace of a context, as kubectl uses it; "": the context names none.  Raises ConfigError."""
    _, context = _checked_context(_files(named), named, chosen)
    return str(context.get("namespace") or "")


def contexts_of(named: str) -> list[str]:
    """The names of all contexts.  Raises ConfigError."""
    return [str(entry["name"]) for file in _files(named).values() for entry in file.get("contexts") or []]


def _checked_context(files: Files, named: str, chosen: str) -> tuple[str, dict[str, Any]]:
    """The name of a context ("": of the current one), and its entry.  Raises ConfigError."""
    current = chosen or next((c for c in (file.get("current-context") for file in reversed(files.values())) if c), None)
    if not current:
        raise ConfigError(f"kubeconfig {named}: no current-context.", CHOOSE)
    context = _entry(files, "contexts", str(current), "context")
    if context is None:
        which = "the context" if chosen else "its current-context"
        raise ConfigError(f'kubeconfig {named}: {which} "{current}" is not among its contexts.', CHOOSE)
    return str(current), context


def _merged(files: Files) -> Any:
    """All entries, for the package.  Of entries of one name the first file's counts, as kubectl merges."""
    found: dict[str, dict[str, Any]] = {plural: {} for plural in PLURALS}
    for path, content in files.items():
        for plural in PLURALS:
            for entry in content.get(plural) or []:
                # Paths in the entry are relative to its file.
                found[plural].setdefault(entry["name"], _ConfigNode(plural, entry, path))
    return _ConfigNode("kubeconfig", {plural: list(entries.values()) for plural, entries in found.items()})


def _files(named: str) -> Files:
    """Raises ConfigError."""
    paths = [os.path.expanduser(path) for path in named.split(os.pathsep) if path]
    files = {path: _read_yaml(path) for path in paths if len(paths) == 1 or Path(path).exists()}
    if not files:
        raise ConfigError(f"kubeconfig {named}: no such file.", POINT)
    return files


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"kubeconfig {path}: no such file.", POINT) from None
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: cannot be read: {reason(error)}.", POINT) from None
    except UnicodeError:
        raise ConfigError(f"kubeconfig {path}: not a kubeconfig (it is no text).", POINT) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date or a number that is none
        mark = getattr(error, "problem_mark", None)
        at = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError(f"kubeconfig {path}: not valid YAML{at}.", TRY) from None
    if not isinstance(content, dict) or not _well_formed(content):
        raise ConfigError(f"kubeconfig {path}: not a kubeconfig (no clusters, contexts and users in it).", POINT)
    return content


def _well_formed(content: dict[str, Any]) -> bool:
    return all(
        isinstance(content.get(plural) or [], list)
        and all(isinstance(e, dict) and isinstance(e.get("name"), str) for e in content.get(plural) or [])
        and all(isinstance(e.get(plural[:-1]) or {}, dict) for e in content.get(plural) or [])
        for plural in PLURALS
    )


def _entry(files: Files, plural: str, name: str, singular: str) -> dict[str, Any] | None:
    """The named entry; the first file that has it wins, as kubectl merges."""
    for file in files.values():
        for entry in file.get(plural) or []:
            if entry["name"] == name:
                return entry.get(singular) or {}
    return None


def _check_address(cluster: Mapping[str, Any], where: str) -> None:
    """Raises ConfigError, without a copy of a password, for an address to which no request can be sent."""
    try:
        parts = urlsplit(str(cluster["server"]))
        is_plain = "@" not in parts.netloc and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:  # brackets without end, a port that is not a number, a name that no resolver takes
        is_plain = False
    if not is_plain:
        raise ConfigError(f"{where}: its server is not an address like https://HOST:PORT.", TRY)
    if not isinstance(cluster.get("proxy-url") or "", str):
        raise ConfigError(f"{where}: its proxy-url is not a text.", TRY)


def _impersonation(user: Mapping[str, Any], where: str) -> Headers:
    """Never dropped: that would act with more rights than the kubeconfig says."""
    if unknown := sorted({"as-uid", "as-user-extra"} & user.keys()):
        raise ConfigError(f"{where}: {' and '.join(unknown)} is not supported.", "Use as and as-groups.")
    if "as" not in user:
        return ()
    groups = user.get("as-groups") or []
    if not isinstance(groups, list) or not all(str(name).isprintable() for name in (user["as"], *groups)):
        raise ConfigError(f"{where}: as or as-groups has something else than printable names.", TRY)
    return (("Impersonate-User", str(user["as"])), *(("Impersonate-Group", str(group)) for group in groups))
