"""Kubeconfigs and service accounts: identity, rotation, and every mistake as one sentence without a secret."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.errors import ConfigError
from bridge.kube import exec_plugin, kept_credentials
from bridge.kube.access import Access, Headers
from bridge.kube.auth import load
from bridge.kube.sources import TRY
from tests.unit.kube.certificates import Certificates, made_certificates, make  # noqa: F401 -- a fixture

SECRET = "s3cr3t-t0k3n"


class Clock:
    def __init__(self) -> None:
        self.now = 1_795_237_200.0

    def __call__(self) -> float:
        return self.now


def kubeconfig(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, **top: Any) -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:8001", **(cluster or {})}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
        "users": [{"name": "me", "user": user}],
        **top,
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def headers(access: Access) -> Headers:
    return (await access.credentials()).headers


async def tls_of(access: Access) -> ssl.SSLContext:
    tls = (await access.credentials()).tls
    assert tls is not None
    return tls


async def renewed(access: Access) -> bool:
    """After a 401 on the credentials of now."""
    return await access.renew((await access.credentials()).generation)


async def authorization(access: Access) -> str | None:
    return dict(await headers(access)).get("Authorization")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed is read twice; tests that write in between set their own time."""
    monkeypatch.setattr(kept_credentials, "SETTLE_S", 0.0)


# --- where the configuration is ---


async def test_the_named_file_comes_before_the_environment_before_the_home_before_the_pod(
    tmp_path: Path, certificates: Certificates
) -> None:
    for name in ("named", "env", "home/.kube"):
        (tmp_path / name).mkdir(parents=True)
    named = kubeconfig(tmp_path / "named", {"token": "named"})
    env = kubeconfig(tmp_path / "env", {"token": "env"})
    home = kubeconfig(tmp_path / "home/.kube", {"token": "home"})
    os.rename(home, tmp_path / "home/.kube/config")
    service_account(tmp_path, "pod", certificates)

    async def who(kubeconfig: str | None = None, **environ: str) -> str | None:
        environ = {"HOME": str(tmp_path / "nobody"), **POD, **environ}
        return await authorization(await load(kubeconfig, environ=environ, service_account=tmp_path))

    at_home = {"HOME": str(tmp_path / "home")}
    assert await who(named, KUBECONFIG=env, **at_home) == "Bearer named"
    assert await who(KUBECONFIG=env, **at_home) == "Bearer env"
    assert await who(**at_home) == "Bearer home"
    assert await who() == "bearer pod"


async def test_without_any_credentials_the_mistake_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no Kubernetes cluster to talk to: .* --kubeconfig FILE"):
        await load(environ={"HOME": str(tmp_path)})


async def test_several_files_are_merged_and_the_first_entry_wins(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = kubeconfig(tmp_path / "a", {"token": "first"})
    second = kubeconfig(tmp_path / "b", {"token": "second"})
    access = await load(os.pathsep.join([first, str(tmp_path / "missing"), second]))
    assert await authorization(access) == "Bearer first"


# --- who we are ---


async def test_requests_carry_a_token_a_password_or_nothing(tmp_path: Path) -> None:
    access = await load(kubeconfig(tmp_path, {"token": SECRET}))
    assert access.server == "http://127.0.0.1:8001"
    assert (await access.credentials()).tls is None
    assert await authorization(access) == f"Bearer {SECRET}"

    access = await load(kubeconfig(tmp_path, {"username": "me", "password": "pw"}))
    assert await authorization(access) == "Basic " + base64.b64encode(b"me:pw").decode()

    access = await load(kubeconfig(tmp_path, {}))
    assert await headers(access) == ()


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "interactiveMode": "Never"}


@pytest.mark.parametrize(
    ("user", "cluster", "why"),
    [
        ({}, {"server": "http://me:SECRET@127.0.0.1:1"}, "its server is not an address"),
        ({}, {"server": "http://127.0.0.1:99999"}, "its server is not an address"),
        ({}, {"server": "https://api..example:6443"}, "its server is not an address"),
        ({}, {"server": "http://127.0.0.1:1", "proxy-url": 5}, "its proxy-url is not a text"),
        ({"as": "me\r\nX: y"}, None, "something else than printable names"),
        ({"as": "me", "as-groups": 5}, None, "something else than printable names"),
        ({"exec": EXEC | {"args": 5}}, None, "has args that are not a list"),
        ({"exec": EXEC | {"env": [{"name": "A"}]}}, None, "an env that is not a list of names and values"),
        ({"exec": EXEC | {"args": ["a\0b"]}}, None, "cannot be started: embedded null byte"),
    ],
)
async def test_odd_values_in_a_kubeconfig_are_one_sentence_without_a_password(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any] | None, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        await (await load(kubeconfig(tmp_path, user, cluster))).credentials()
    assert "SECRET" not in str(refused.value)


async def test_impersonation_is_never_dropped(tmp_path: Path) -> None:
    access = await load(kubeconfig(tmp_path, {"token": SECRET, "as": "bridge", "as-groups": ["a", "b"]}))
    assert await headers(access) == (
        ("Authorization", f"Bearer {SECRET}"),
        ("Impersonate-User", "bridge"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )
    with pytest.raises(ConfigError, match="as-uid is not supported"):
        await load(kubeconfig(tmp_path, {"as": "bridge", "as-uid": "7"}))


async def test_a_token_file_that_is_rewritten_is_read_again_within_a_minute(tmp_path: Path) -> None:
    clock, token = Clock(), tmp_path / "token"
    token.write_text("first\n")
    access = await load(kubeconfig(tmp_path, {"tokenFile": "token"}), now=clock)
    assert await authorization(access) == "Bearer first"

    token.write_text("second\n")
    clock.now += 30
    assert await authorization(access) == "Bearer first"
    clock.now += 31
    assert await authorization(access) == "Bearer second"


async def test_after_a_401_newer_credentials_are_looked_for_at_once_but_not_by_every_call(tmp_path: Path) -> None:
    clock, token = Clock(), tmp_path / "token"
    token.write_text("first")
    access = await load(kubeconfig(tmp_path, {"tokenFile": str(token)}), now=clock)
    used = (await access.credentials()).generation
    clock.now += 10
    assert await access.renew(used) is False
    token.write_text("second")
    assert await access.renew(used) is False
    clock.now += 10
    assert await access.renew(used) is True
    assert await access.renew(used) is True
    assert await authorization(access) == "Bearer second"


async def test_a_token_file_that_is_missing_for_a_moment_leaves_the_old_token(tmp_path: Path) -> None:
    clock, token = Clock(), tmp_path / "token"
    token.write_text("first")
    access = await load(kubeconfig(tmp_path, {"tokenFile": str(token)}), now=clock)
    token.unlink()
    clock.now += 61
    assert await authorization(access) == "Bearer first"
    for _ in range(2):
        with pytest.raises(ConfigError, match="No such file"):
            await renewed(access)


async def test_while_a_large_kubeconfig_is_read_again_decisions_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a hundred contexts, and is read once a minute."""
    clock = Clock()
    access = await load(kubeconfig(tmp_path, {"token": "first"}), now=clock)
    parse, threads = yaml.safe_load, list[threading.Thread]()

    def noted(text: str) -> Any:
        threads.append(threading.current_thread())
        return parse(text)

    kubeconfig(tmp_path, {"token": "second"})
    monkeypatch.setattr(yaml, "safe_load", noted)
    clock.now += 61
    assert await authorization(access) == "Bearer second"
    assert len(threads) == 2, "what is new is read twice"
    assert threading.main_thread() not in threads


# --- a pod's service account ---


POD = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "6443"}


def service_account(folder: Path, token: str, certificates: Certificates) -> None:
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_text(certificates.authority.read_text())


async def in_a_pod(folder: Path, token: str, certificates: Certificates, clock: Clock) -> Access:
    service_account(folder, token, certificates)
    return await load(environ={"HOME": str(folder), **POD}, now=clock, service_account=folder)


async def test_a_new_token_needs_no_new_connections_and_a_new_authority_does(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Each token rotation closed all pooled connections, because they belong to a TLS context."""
    clock = Clock()
    access = await in_a_pod(tmp_path, "first", certificates, clock)
    before = await tls_of(access)
    service_account(tmp_path, "second", certificates)
    clock.now += 61
    assert (await authorization(access), await tls_of(access)) == ("bearer second", before)
    (tmp_path / "ca.crt").write_text(certificates.authority.read_text() * 2)
    clock.now += 61
    assert await tls_of(access) is not before


async def test_in_a_pod_requests_carry_the_service_accounts_token_which_rotates(
    tmp_path: Path, certificates: Certificates
) -> None:
    clock = Clock()
    access = await in_a_pod(tmp_path, "first\n", certificates, clock)
    assert access.server == "https://[::1]:6443"
    assert await tls_of(access)
    assert await authorization(access) == "bearer first"
    (tmp_path / "token").write_text("second\n")
    clock.now += 61
    assert await authorization(access) == "bearer second"


async def test_a_pod_without_a_writable_folder_uses_its_service_account(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose file system is read-only."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    service_account(tmp_path, "first\n", certificates)
    access = await load(environ={"HOME": str(tmp_path), **POD}, service_account=tmp_path)
    assert (await tls_of(access)).get_ca_certs()


async def test_a_service_account_without_a_token_is_reported(tmp_path: Path, certificates: Certificates) -> None:
    service_account(tmp_path, "x", certificates)
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match=r"service account in .* cannot be used: Service token file does not exist"):
        await load(environ={"HOME": str(tmp_path), **POD}, service_account=tmp_path)


# --- exec plugins ---


def plugin(folder: Path, code: str) -> str:
    """A program that writes how often it ran, then does what `code` says."""
    path = folder / "plugin"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, sys, time\nruns = pathlib.Path({str(folder / 'runs')!r})\n"
        "number = int(runs.read_text()) + 1 if runs.exists() else 1\nruns.write_text(str(number))\n"
        "def say(**status):\n"
        '    print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "status": status}))\n'
        f"{code}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def runs_of(folder: Path) -> int:
    return int((folder / "runs").read_text())


def executing(command: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, **more}}


async def test_a_plugin_runs_once_if_its_token_names_no_expiry(tmp_path: Path) -> None:
    command = plugin(tmp_path, 'say(token=f"t{number}-{sys.argv[1]}-{os.environ[chr(65)]}")')
    user = executing(command, args=["arg"], env=[{"name": "A", "value": "env"}])
    clock = Clock()
    access = await load(kubeconfig(tmp_path, user), now=clock)
    for _ in range(3):
        clock.now += 3600
        assert await authorization(access) == "Bearer t1-arg-env"
    assert runs_of(tmp_path) == 1


async def test_a_plugin_is_asked_again_before_its_token_expires_and_after_a_401(tmp_path: Path) -> None:
    command = plugin(tmp_path, 'say(token=f"t{number}", expirationTimestamp="2026-11-21T06:00:00Z")')
    clock = Clock()  # 05:00:00
    access = await load(kubeconfig(tmp_path, executing(command)), now=clock, wall=clock)
    clock.now += 3500
    assert await authorization(access) == "Bearer t1"
    assert await renewed(access) is True
    assert await authorization(access) == "Bearer t2"
    clock.now += 80
    assert await authorization(access) == "Bearer t3"


async def test_a_plugin_runs_once_however_many_calls_wait_for_it(tmp_path: Path) -> None:
    command = plugin(tmp_path, 'say(token=f"t{number}", expirationTimestamp="2026-11-21T06:00:00Z")')
    clock = Clock()
    access = await load(kubeconfig(tmp_path, executing(command)), now=clock, wall=clock)
    used = (await access.credentials()).generation
    clock.now += 3590
    assert set(await asyncio.gather(*(authorization(access) for _ in range(20)))) == {"Bearer t2"}
    assert all(await asyncio.gather(*(access.renew(used) for _ in range(20))))
    assert runs_of(tmp_path) == 2


async def test_a_plugin_is_found_beside_its_kubeconfig_and_gets_the_request(tmp_path: Path) -> None:
    plugin(tmp_path, 'info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])\nsay(token=info["kind"])')
    access = await load(kubeconfig(tmp_path, executing("./plugin")))
    assert await authorization(access) == "Bearer ExecCredential"


async def test_a_plugin_may_give_a_client_certificate(tmp_path: Path, certificates: Certificates) -> None:
    pair = {
        "clientCertificateData": certificates.certificate.read_text(),
        "clientKeyData": certificates.key.read_text(),
    }
    command = plugin(tmp_path, f"say(**{pair!r})")
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(certificates.authority)}
    access = await load(kubeconfig(tmp_path, executing(command), cluster))
    assert await headers(access) == ()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("sys.exit(3)", "failed with exit code 3"),
        ("pass", "printed no ExecCredential"),
        ('print("[]")', "printed no ExecCredential"),
        ("say()", "printed neither a token nor"),
        ('print(json.dumps({"apiVersion": "v0", "status": {}}))', "answered in v0"),
        ('say(clientCertificateData="x", clientKeyData="y")', "printed a client certificate that cannot be used"),
    ],
)
async def test_a_failing_credential_plugin_is_reported_and_never_means_anonymous_requests(
    tmp_path: Path, certificates: Certificates, code: str, words: str
) -> None:
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(certificates.authority)}
    with pytest.raises(ConfigError, match=f"its exec plugin .*/plugin {words}"):
        await load(kubeconfig(tmp_path, executing(plugin(tmp_path, code)), cluster))


async def test_a_plugin_that_is_not_installed_is_reported_with_its_hint(tmp_path: Path) -> None:
    user = executing("no-such-plugin-here", installHint="Get it from your cloud's admin.")
    with pytest.raises(ConfigError, match=r"no-such-plugin-here is not installed\. Get it from your cloud's admin\."):
        await load(kubeconfig(tmp_path, user))


async def test_a_plugin_that_needs_a_terminal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="asks for a terminal"):
        await load(kubeconfig(tmp_path, executing("x", interactiveMode="Always")))


async def test_a_plugin_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "EXEC_DEADLINE_S", 0.5)
    command = plugin(tmp_path, f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\ntime.sleep(600)")
    with pytest.raises(ConfigError, match="did not answer"):
        await load(kubeconfig(tmp_path, executing(command)))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_plugin_that_fails_later_leaves_the_token_and_says_why_after_a_401(tmp_path: Path) -> None:
    code = 'say(token="t1", expirationTimestamp="2026-11-21T06:00:00Z") if number == 1 else sys.exit(1)'
    clock = Clock()
    access = await load(kubeconfig(tmp_path, executing(plugin(tmp_path, code))), now=clock, wall=clock)
    clock.now += 3600
    for _ in range(3):
        assert await authorization(access) == "Bearer t1"
        with pytest.raises(ConfigError, match="failed with exit code 1"):
            await renewed(access)
    assert runs_of(tmp_path) == 2


# --- TLS ---


async def test_certificates_given_as_data_or_as_files_are_used(tmp_path: Path, certificates: Certificates) -> None:
    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    for user, cluster in (
        (
            {"client-certificate": str(certificates.certificate), "client-key": str(certificates.key)},
            {"certificate-authority": str(certificates.authority)},
        ),
        (
            {"client-certificate-data": data(certificates.certificate), "client-key-data": data(certificates.key)},
            {"certificate-authority-data": data(certificates.authority)},
        ),
    ):
        cluster |= {"server": "https://127.0.0.1:6443/", "tls-server-name": "kube.example.com"}
        access = await load(kubeconfig(tmp_path, user, cluster))
        assert access.server == "https://127.0.0.1:6443"
        assert access.server_hostname == "kube.example.com"
        tls = await tls_of(access)
        assert tls.check_hostname
        assert len(tls.get_ca_certs()) == 1


async def test_a_server_is_not_verified_if_the_kubeconfig_disables_it(tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}
    access = await load(kubeconfig(tmp_path, {"token": "t"}, cluster))
    assert not (await tls_of(access)).check_hostname


async def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    access = await load(kubeconfig(tmp_path, {"token": "t"}, {"proxy-url": "http://proxy.example.com:3128"}))
    assert access.proxy == "http://proxy.example.com:3128"


# --- mistakes ---


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"current-context": None}, "no current-context. Choose one of its contexts: kubectl config use-context NAME"),
        ({"current-context": "prod"}, 'its current-context "prod" is not among its contexts'),
        ({"contexts": [{"name": "lab", "context": {"cluster": "x"}}]}, 'context "lab" names no cluster'),
        ({"clusters": []}, 'context "lab" names no cluster that has a server'),
        ({"users": []}, 'names the user "me", which is not in it'),
        ({"users": "me"}, "not a kubeconfig"),
        ({"users": [{"user": {}}]}, "not a kubeconfig"),
    ],
)
async def test_a_kubeconfig_that_lacks_something_is_reported(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET}, **change)
    with pytest.raises(ConfigError) as failed:
        await load(path)
    assert str(failed.value).startswith(f"kubeconfig {path}: ")
    assert words in str(failed.value)
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("users: [", "not valid YAML (line 1)"),
        (f"users:\n  - token: '{SECRET}\n", "not valid YAML (line"),
        ("", "not a kubeconfig"),
        ("just text", "not a kubeconfig"),
        ("\x00", "not valid YAML"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_reported(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError) as failed:
        await load(str(path))
    assert words in str(failed.value)
    assert SECRET not in str(failed.value)


async def test_files_that_are_not_there_are_reported(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(
        ConfigError, match=f"kubeconfig {missing}: no such file. Point --kubeconfig or KUBECONFIG at one."
    ):
        await load(missing)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        await load(str(tmp_path))
    with pytest.raises(ConfigError, match="No such file"):
        await load(kubeconfig(tmp_path, {"tokenFile": missing}))
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": missing}
    with pytest.raises(ConfigError, match=f"no such file: {missing}"):
        await load(kubeconfig(tmp_path, {"token": SECRET}, cluster))


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe" * 40], ids=["empty", "a line end", "binary"])
async def test_an_empty_certificate_authority_does_not_mean_the_authorities_of_the_machine(
    tmp_path: Path, certificates: Certificates, content: bytes
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(content)
    config = kubeconfig(
        tmp_path, {"token": SECRET}, {"server": "https://127.0.0.1:6443", "certificate-authority": str(authority)}
    )
    with pytest.raises(ConfigError, match="its certificate-authority holds no certificate"):
        await load(config)
    clock = Clock()
    authority.write_bytes(certificates.authority.read_bytes())
    access = await load(config, now=clock)
    before = await access.credentials()
    authority.write_bytes(content)
    clock.now += 61
    assert (await access.credentials()).tls is before.tls, "what was read before is used"


async def test_after_tls_failed_the_files_are_read_again_soon(tmp_path: Path, certificates: Certificates) -> None:
    """The authority of another cluster was written there by mistake, and is put right."""
    authority = tmp_path / "ca.pem"
    authority.write_bytes(certificates.certificate.read_bytes())
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(authority)}
    clock = Clock()
    access = await load(kubeconfig(tmp_path, {"token": SECRET}, cluster), now=clock)
    before = await access.credentials()
    authority.write_bytes(certificates.authority.read_bytes())
    clock.now += 6
    assert (await access.credentials()).tls is before.tls, "nothing is amiss"
    access.recheck()
    assert (await access.credentials()).tls is not before.tls


async def test_invalid_certificates_are_reported(tmp_path: Path, certificates: Certificates) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(bad)}
    with pytest.raises(ConfigError, match="holds no certificate"):
        await load(kubeconfig(tmp_path, {"token": SECRET}, cluster))
    cluster["certificate-authority"] = str(certificates.authority)
    user = {"client-certificate": str(certificates.certificate), "client-key": str(bad)}
    with pytest.raises(ConfigError, match="its client certificate and key cannot be used"):
        await load(kubeconfig(tmp_path, user, cluster))


async def test_an_auth_provider_is_refused_and_points_to_exec_plugins(tmp_path: Path) -> None:
    """The package would renew its tokens without checking the certificate of the server."""
    for user in (
        {"token": SECRET, "auth-provider": {"name": "oidc"}},
        {"auth-provider": {"name": "gcp", "config": {}}},
        {"auth-provider": None},
    ):
        with pytest.raises(ConfigError) as failed:
            await load(kubeconfig(tmp_path, user))
        assert "its user has an auth-provider, which is not supported. Use an exec plugin instead" in str(failed.value)
        assert SECRET not in str(failed.value)


# --- files that are read while they are written, and what rotates -----------------------------------------------------


async def test_while_a_kubeconfig_is_being_written_the_previous_credentials_stay_and_it_is_read_again_soon(
    tmp_path: Path,
) -> None:
    clock = Clock()
    path = tmp_path / "kubeconfig"
    access = await load(kubeconfig(tmp_path, {"token": "first", "as": "bridge"}), now=clock)
    kubeconfig(tmp_path, {"token": "second", "as": "bridge"})
    whole = path.read_text()
    before = await headers(access)
    seen = set()
    for length in range(0, len(whole), 3):
        path.write_text(whole[:length])
        clock.now += 61
        found = await headers(access)
        seen.add(found)
        assert ("Impersonate-User", "bridge") in found
        assert dict(found)["Authorization"].startswith("Bearer ")
    assert before in seen
    path.write_text(whole)
    clock.now += 6
    assert await authorization(access) == "Bearer second"


async def test_a_token_that_is_cut_is_not_used_while_it_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_credentials, "SETTLE_S", 0.2)
    clock, token = Clock(), tmp_path / "token"
    token.write_text("first")
    access = await load(kubeconfig(tmp_path, {"tokenFile": str(token)}), now=clock)
    token.write_text("sec")
    clock.now += 61
    asked = asyncio.create_task(authorization(access))
    await asyncio.sleep(0.05)
    token.write_text("second")
    assert await asked == "Bearer first"
    clock.now += 6
    assert await authorization(access) == "Bearer second"


async def access_after_the_token_file_became(tmp_path: Path, written: str) -> tuple[Access, Clock, Path]:
    """An access whose token file held a token, and then this, which no request can use; with its clock and the file."""
    clock, token = Clock(), tmp_path / "token"
    token.write_text("first")
    access = await load(kubeconfig(tmp_path, {"tokenFile": str(token)}), now=clock)
    token.write_text(written)
    clock.now += 61
    assert await authorization(access) == "Bearer first"
    return access, clock, token


@pytest.mark.parametrize("written", ["", "\n", " "])
async def test_a_token_file_that_is_empty_for_a_moment_leaves_the_old_token(tmp_path: Path, written: str) -> None:
    access, clock, token = await access_after_the_token_file_became(tmp_path, written)
    clock.now += 6
    with pytest.raises(ConfigError, match="its token is empty"):
        await renewed(access)
    token.write_text("second")
    clock.now += 6
    assert await authorization(access) == "Bearer second"


@pytest.mark.parametrize("written", ["\0" * 64, "sec\x01ond", "sec\u00f6nd"])
async def test_a_token_that_no_request_can_carry_leaves_the_old_token(tmp_path: Path, written: str) -> None:
    """A file that was written shortly before a power failure may hold zeros."""
    access, _, _ = await access_after_the_token_file_became(tmp_path, written)
    assert "its token has a character that no header may hold." in access.trouble()


async def test_a_plugin_whose_token_no_request_can_carry_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its token has a character that no header may hold"):
        await load(kubeconfig(tmp_path, executing(plugin(tmp_path, 'say(token="a\\0b")'))))


async def test_a_source_that_cannot_be_read_again_is_reported_once_while_the_previous_credentials_are_used(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, token, authority = Clock(), tmp_path / "token", tmp_path / "ca.pem"

    def right() -> None:
        token.write_text("first")
        authority.write_bytes(certificates.authority.read_bytes())

    right()
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(authority)}
    config = kubeconfig(tmp_path, {"tokenFile": str(token)}, cluster)
    access = await load(config, now=clock)
    assert access.trouble() == ""
    for wrong, why in (
        (lambda: token.write_text(""), "its token is empty"),
        (token.unlink, f"{token}: No such file or directory"),
        (lambda: authority.write_text("nonsense"), "its certificate-authority holds no certificate"),
    ):
        caplog.clear()
        wrong()
        for _ in range(3):
            clock.now += 61
            assert await authorization(access) == "Bearer first"
        where = f'kubeconfig {config}, context "lab"'
        assert access.trouble() == f"{where}: {why}. The credentials that were read before stay in use. {TRY}"
        assert [each.message for each in caplog.records] == [access.trouble()]
        right()
        clock.now += 61
        await access.credentials()
        assert access.trouble() == ""
        assert caplog.records[-1].message == f"{where}: in order again"


def jwt(**claims: float) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{part}.c2ln"


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ({"token": jwt(exp=1_795_237_140)}, "its token expired at 2026-11-21T04:59:00Z. Renew it"),
        (
            {"token": jwt(exp=1_795_240_000)},
            "the API server does not accept its token. Renew it, or name one of this cluster",
        ),
        ({"token": SECRET}, "the API server does not accept its token. Renew it, or name one of this cluster"),
        ({"token": "a.b.c"}, "the API server does not accept its token. Renew it, or name one of this cluster"),
        (
            {"token": jwt(exp=10**400)},
            "the API server does not accept its token. Renew it, or name one of this cluster",
        ),
        ({"token": jwt(exp=-1e300)}, "the API server does not accept its token. Renew it, or name one of this cluster"),
        ({}, "it names no credentials, and the API server requires some"),
    ],
    ids=["expired", "of another cluster", "opaque", "no JSON", "endless", "absurd", "nobody"],
)
async def test_the_message_about_rejected_credentials(tmp_path: Path, user: dict[str, Any], says: str) -> None:
    config = kubeconfig(tmp_path, user)
    assert (await load(config, wall=Clock())).refused() == f'kubeconfig {config}, context "lab": {says}'


async def test_a_token_that_is_empty_at_the_start_is_reported_and_does_not_mean_anonymous_requests(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("")
    for user in ({"tokenFile": str(tmp_path / "token")}, {"token": ""}):
        with pytest.raises(ConfigError, match="its token is empty"):
            await load(kubeconfig(tmp_path, user))


async def test_a_service_account_whose_token_is_empty_for_a_moment_keeps_it(
    tmp_path: Path, certificates: Certificates
) -> None:
    clock = Clock()
    access = await in_a_pod(tmp_path, "first", certificates, clock)
    for written in ("", "\n"):
        (tmp_path / "token").write_text(written)
        clock.now += 61
        assert await authorization(access) == "bearer first"


async def test_if_a_kubeconfig_names_another_server_its_credentials_are_not_sent_to_the_old_server(
    tmp_path: Path,
) -> None:
    clock = Clock()
    path = kubeconfig(tmp_path, {"token": "first"})
    access = await load(path, now=clock)
    kubeconfig(tmp_path, {"token": "others"}, {"server": "http://127.0.0.1:9999"})
    clock.now += 61
    assert await authorization(access) == "Bearer first"
    clock.now += 6
    with pytest.raises(ConfigError, match=r"names another server now\. Restart slurm-bridge"):
        await renewed(access)


async def test_another_current_context_changes_nothing_while_the_bridge_runs(tmp_path: Path) -> None:
    clock = Clock()
    users = [{"name": "me", "user": {"token": "mine"}}, {"name": "other", "user": {"token": "others"}}]
    contexts = [
        {"name": name, "context": {"cluster": "lab", "user": user}} for name, user in (("lab", "me"), ("x", "other"))
    ]
    access = await load(kubeconfig(tmp_path, {}, users=users, contexts=contexts), now=clock)
    kubeconfig(tmp_path, {}, users=users, contexts=contexts, **{"current-context": "x"})
    clock.now += 61
    assert await authorization(access) == "Bearer mine"


async def test_a_client_certificate_and_its_key_are_replaced_together(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Between the two writes they do not fit: a handshake with half of them would fail."""
    clock = Clock()
    pem, key = tmp_path / "x.pem", tmp_path / "x.key"
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = make(other_folder)
    pem.write_bytes(certificates.certificate.read_bytes())
    key.write_bytes(certificates.key.read_bytes())
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(certificates.authority)}
    user = {"client-certificate": str(pem), "client-key": str(key)}
    access = await load(kubeconfig(tmp_path, user, cluster), now=clock)
    first = await access.credentials()

    clock.now += 61
    assert await access.credentials() is first

    pem.write_bytes(other.certificate.read_bytes())
    clock.now += 61
    assert await access.credentials() is first
    clock.now += 6
    with pytest.raises(ConfigError, match="its client certificate and key cannot be used"):
        await access.renew(first.generation)

    key.write_bytes(other.key.read_bytes())
    clock.now += 6
    second = await access.credentials()
    assert second.generation == first.generation + 1
    assert second.tls is not None
    assert second.tls is not first.tls


async def test_many_401s_cause_one_read_of_the_sources_and_a_401_on_older_credentials_causes_none(
    tmp_path: Path,
) -> None:
    command = plugin(tmp_path, 'time.sleep(0.2)\nsay(token=f"t{number}")')
    clock = Clock()
    access = await load(kubeconfig(tmp_path, executing(command)), now=clock)
    used = (await access.credentials()).generation
    clock.now += 60
    assert all(await asyncio.gather(*(access.renew(used) for _ in range(50))))
    clock.now += 60
    # Sent before the look, answered after it.
    assert all(await asyncio.gather(*(access.renew(used) for _ in range(50))))
    assert runs_of(tmp_path) == 2


async def test_a_cancelled_caller_does_not_end_the_read_of_the_sources_for_others(tmp_path: Path) -> None:
    command = plugin(tmp_path, 'time.sleep(0.3 if number > 1 else 0)\nsay(token=f"t{number}")')
    clock = Clock()
    access = await load(kubeconfig(tmp_path, executing(command)), now=clock)
    used = (await access.credentials()).generation
    clock.now += 60
    first, second = (asyncio.create_task(access.renew(used)) for _ in range(2))
    await asyncio.sleep(0.05)
    first.cancel()
    assert await second is True
    assert await authorization(access) == "Bearer t2"
    assert runs_of(tmp_path) == 2


async def test_an_expiry_is_a_time_from_now_and_a_clock_that_is_set_later_does_not_move_it(tmp_path: Path) -> None:
    command = plugin(tmp_path, 'say(token=f"t{number}", expirationTimestamp="2026-11-21T06:00:00Z")')
    wall, clock = Clock(), Clock()  # 05:00:00
    clock.now = 77.0
    access = await load(kubeconfig(tmp_path, executing(command)), now=clock, wall=wall)
    wall.now += 1_000_000
    clock.now += 3500
    assert await authorization(access) == "Bearer t1"
    clock.now += 80
    assert await authorization(access) == "Bearer t2"


async def test_a_program_in_the_place_of_a_kubeconfig_is_reported_without_a_word_of_python(tmp_path: Path) -> None:
    program = tmp_path / "ls"
    program.write_bytes(b"\x7fELF\xc0\xff\xee")
    with pytest.raises(ConfigError) as failed:
        await load(str(program))
    assert failed.value.what == f"kubeconfig {program}: not a kubeconfig (it is no text)."
    assert failed.value.do == "Point --kubeconfig or KUBECONFIG at one."
