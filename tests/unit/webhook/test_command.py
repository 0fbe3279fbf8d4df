"""`slurm-bridge webhook` as a user starts it: each mistake is one line and exit code 2."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from bridge.__main__ import EXIT_CONFIG, main
from bridge.webhook.certificates import make
from integration.clusters import free_port
from tests.patience import PATIENCE_S
from tests.unit.webhook.pem import another_key


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    made = make(["127.0.0.1"], time.time())
    for name, content in (("tls.crt", made.pair.certificate), ("tls.key", made.pair.key), ("ca.crt", made.authority)):
        (tmp_path / name).write_bytes(content)
    return str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["webhook", *arguments]) == EXIT_CONFIG
    [line] = capfd.readouterr().err.splitlines()
    return line.removeprefix("slurm-bridge: ")


def test_mistakes_on_the_command_line(capfd: pytest.CaptureFixture[str], pair: tuple[str, str], tmp_path: Path) -> None:
    assert said(capfd, "--tls-cert-file", pair[0]) == (
        "--tls-cert-file and --tls-key-file belong together. Name both files, or none."
    )
    assert said(capfd, "--listen", "8443") == "--listen 8443: is not HOST:PORT."
    assert said(capfd, "--listen", ":0") == "--listen :0: is not HOST:PORT."
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}], "
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: x, user: {token: y}}]}"
    )
    given = ("--kubeconfig", str(kubeconfig))
    assert said(capfd, *given, "--secret", "x") == "--secret x: is not NAMESPACE/NAME."
    assert said(capfd, *given, "--secret", "x/../y") == "--secret x/../y: is not NAMESPACE/NAME."
    assert "is not a valid name of a Kubernetes object" in said(capfd, *given, "--configuration", "a/b")


def test_mistakes_in_the_files(capfd: pytest.CaptureFixture[str], pair: tuple[str, str], tmp_path: Path) -> None:
    certificate, key = pair
    swapped = said(capfd, "--tls-cert-file", key, "--tls-key-file", certificate)
    assert "the certificate and the key are swapped." in swapped
    other = tmp_path / "other.key"
    other.write_bytes(another_key())
    assert "does not belong" in said(capfd, "--tls-cert-file", certificate, "--tls-key-file", str(other))
    missing = str(tmp_path / "none")
    assert said(capfd, "--tls-cert-file", missing, "--tls-key-file", key) == (
        f"--tls-cert-file {missing}: No such file or directory. Name a PEM file that this user may read."
    )


def test_no_cluster(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert said(capfd).startswith("no Kubernetes cluster to talk to")


def test_a_missing_package_is_named(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("command", "given", "own", "server", "certificates"):
        monkeypatch.delitem(sys.modules, f"bridge.webhook.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert said(capfd) == (
        "webhook: the Python package cryptography is not installed. Install it: pip install cryptography"
    )


async def ready(port: int, authority: bytes) -> str:
    """What /readyz says with status 200; "": no answer of a server that this authority vouches for."""
    tls = ssl.create_default_context(cadata=authority.decode())
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}/readyz", ssl=tls) as answer,
        ):
            assert answer.status == 200
            return await answer.text()
    except aiohttp.ClientConnectionError:
        return ""


async def test_it_serves_reads_renewed_files_and_ends_at_sigterm(pair: tuple[str, str], tmp_path: Path) -> None:
    certificate, key = pair
    port, log = free_port(), tmp_path / "log"
    program = (
        "import sys; from bridge.webhook import command; command.LOOK_EVERY_S = 0.05; "
        "from bridge.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ("--listen", f"127.0.0.1:{port}", "--tls-cert-file", certificate, "--tls-key-file", key)
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, "webhook", *arguments, stderr=file, cwd=Path(__file__).parents[3]
        )

    async def until(authority: bytes, says: str = "ok") -> None:
        async with asyncio.timeout(PATIENCE_S):
            while says not in await ready(port, authority):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)

    try:
        await until((tmp_path / "ca.crt").read_bytes())
        renewed = make(["127.0.0.1"], time.time())
        (tmp_path / "tls.key").write_bytes(renewed.pair.key)
        (tmp_path / "tls.crt").write_bytes(renewed.pair.certificate)
        await until(renewed.authority)
        (tmp_path / "tls.key").write_bytes(make(["127.0.0.1"], time.time()).pair.key)
        kept = (
            "the key does not belong to the certificate. The former certificate stays in use. Write a valid certificate"
        )
        await until(renewed.authority, f"--tls-key-file {key}: {kept}")
        (tmp_path / "tls.key").write_bytes(renewed.pair.key)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "Traceback" not in log.read_text()
    assert log.read_text().count(kept) == 1, "told once, not at each look"
