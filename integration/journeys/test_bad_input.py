"""A mistake at start is one line that says what, where and what to do; exit code 2, no traceback, no token.

What waiting may mend is waited for: the process lives, and /readyz says why it is not ready.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from bridge.webhook.certificates import make
from integration.clusters import Kube, Slurm, eventually, free_port


def start(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `slurm-bridge run`."""
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "run", "--http", f"127.0.0.1:{free_port()}", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def goes_on(*arguments: str, says: tuple[str, ...], code: int = 503, **environment: str) -> None:
    """Asserts that the bridge reports these texts in /readyz, goes on running, and ends cleanly after SIGTERM.

    code   what /readyz answers: 503 while the bridge waits, 200 if it works
    """
    port = free_port()
    command = [sys.executable, "-m", "bridge", "run", "--http", f"127.0.0.1:{port}", *arguments]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment) as process:
        try:
            eventually(f"/readyz says {says}", lambda: _says(process, f"{url}/readyz", says, code))
            assert requests.get(f"{url}/healthz", timeout=10).text == "ok\n"
        finally:
            process.terminate()
            _, err = process.communicate(timeout=10)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def _says(process: subprocess.Popen[str], url: str, words: tuple[str, ...], code: int) -> bool:
    assert process.poll() is None, "it has ended"
    try:
        answer = requests.get(url, timeout=10)
    except requests.ConnectionError:
        return False
    return answer.status_code == code and all(word in answer.text for word in words)


def refused(*arguments: str, says: tuple[str, ...], **environment: str) -> None:
    code, out, err = start(*arguments, **environment)
    assert code == 2, err
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("slurm-bridge: ")
    for word in says:
        assert word in lines[0]


@pytest.fixture
def good(kube: Kube, slurm: Slurm) -> list[str]:
    return ["--kubeconfig", kube.kubeconfig, "--slurm-url", slurm.url, "--slurm-token-file", slurm.token_file]


def swapped(arguments: list[str], option: str, value: str) -> list[str]:
    at = arguments.index(option) + 1
    return [*arguments[:at], value, *arguments[at + 1 :]]


def test_no_server_listens_at_the_slurm_url(good: list[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    goes_on(*swapped(good, "--slurm-url", url), says=(url,))


def test_the_slurm_url_leads_elsewhere(good: list[str], slurm: Slurm) -> None:
    goes_on(*swapped(good, "--slurm-url", slurm.url + "/elsewhere"), says=("404",))


def test_the_slurm_url_is_none(good: list[str]) -> None:
    refused(*swapped(good, "--slurm-url", "localhost"), says=("slurm_url", "http://HOST:PORT"))


def test_plain_http_to_another_host_is_refused(good: list[str]) -> None:
    refused(*swapped(good, "--slurm-url", "http://slurm.example:6820"), says=("unencrypted", "allow_plain_http"))


def test_an_expired_token(good: list[str], tmp_path: Path) -> None:
    def part(content: bytes) -> bytes:
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    claims = {"iat": 1, "exp": 2, "sun": "slurm"}
    body = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
    token = (body + b"." + part(hmac.new(b"key", body, hashlib.sha256).digest())).decode()
    file = tmp_path / "token"
    file.write_text(token)
    refused(*swapped(good, "--slurm-token-file", str(file)), says=("expired", str(file)))


def test_a_token_of_another_cluster(good: list[str], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJzbHVybSIsImV4cCI6NDAwMDAwMDAwMH0.bm90IHNpZ25lZA")
    refused(*swapped(good, "--slurm-token-file", str(file)), says=("does not accept it",))


def test_no_token_file(good: list[str], tmp_path: Path) -> None:
    refused(*swapped(good, "--slurm-token-file", str(tmp_path / "none")), says=("none",))


def test_no_kubeconfig_there(good: list[str], tmp_path: Path) -> None:
    refused(*swapped(good, "--kubeconfig", str(tmp_path / "none")), says=("none",))


def test_kubernetes_does_not_listen(good: list[str], kube: Kube, tmp_path: Path) -> None:
    content = yaml.safe_load(Path(kube.kubeconfig).read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    goes_on(*swapped(good, "--kubeconfig", str(file)), says=("Kubernetes", "127.0.0.1"))


def kubeconfig_with(kube: Kube, folder: Path, user: dict[str, Any], **cluster: str) -> str:
    """The kubeconfig of the rig with that user in the place of its own, and those changes of the cluster."""
    content = yaml.safe_load(Path(kube.kubeconfig).read_text())
    content["users"][0]["user"] = user
    content["clusters"][0]["cluster"] |= cluster
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return str(file)


def test_a_kubernetes_token_of_another_cluster(good: list[str], kube: Kube, tmp_path: Path) -> None:
    kubeconfig = kubeconfig_with(kube, tmp_path, {"token": "not.of.this"})
    says = (f"kubeconfig {kubeconfig}, context", "the API server does not accept its token", "name one of this cluster")
    refused(*swapped(good, "--kubeconfig", kubeconfig), says=says)


def test_an_expired_kubernetes_token(good: list[str], kube: Kube, tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_700_000_000}).encode()).rstrip(b"=").decode()
    kubeconfig = kubeconfig_with(kube, tmp_path, {"token": f"e30.{claims}.c2ln"})
    says = (f"kubeconfig {kubeconfig}, context", "its token expired at 2023-11-14T22:13:20Z. Renew it")
    refused(*swapped(good, "--kubeconfig", kubeconfig), says=says)


def test_an_empty_kubernetes_token(good: list[str], kube: Kube, tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    kubeconfig = kubeconfig_with(kube, tmp_path, {"tokenFile": str(tmp_path / "token")})
    refused(*swapped(good, "--kubeconfig", kubeconfig), says=(kubeconfig, "its token is empty"))


def test_the_authority_of_another_kubernetes_cluster(good: list[str], kube: Kube, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(make(["127.0.0.1"], time.time()).authority)
    kubeconfig = kubeconfig_with(kube, tmp_path, {"token": "any"}, **{"certificate-authority": str(authority)})
    goes_on(
        *swapped(good, "--kubeconfig", kubeconfig), says=("TLS with", f"the one that kubeconfig {kubeconfig}, context")
    )


def test_missing_rights(good: list[str], kube: Kube, tmp_path: Path) -> None:
    content = yaml.safe_load(Path(kube.kubeconfig).read_text())
    content["users"][0]["user"]["as"] = "nobody-in-particular"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    refused(*swapped(good, "--kubeconfig", str(file)), says=("may not", "list pods", "rbac.yaml"))


def test_the_policy_names_a_partition_that_slurm_does_not_have_and_only_its_pods_are_refused(
    good: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    rule = {"namespaces": ["a"], "user": "alice", "partition": {"default": "nosuch"}}
    file.write_text(yaml.safe_dump({"policy": {"rules": [rule]}}))
    goes_on(*good, "--config", str(file), says=('no partition "nosuch"', "main"), code=200)


def test_an_unknown_key(good: list[str], tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("slurm_ulr: http://127.0.0.1:1\n")
    refused(*good, "--config", str(file), says=(str(file), "slurm_ulr", "did you mean slurm_url?"))


def test_a_port_in_use(good: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(*good, "--http", f"127.0.0.1:{port}", says=(str(port), "in use", "--http"))


def test_options_may_come_by_environment(kube: Kube, slurm: Slurm) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    goes_on(
        says=(url,),
        SLURM_BRIDGE_KUBECONFIG=kube.kubeconfig,
        SLURM_BRIDGE_SLURM_URL=url,
        SLURM_BRIDGE_SLURM_TOKEN_FILE=slurm.token_file,
    )
