"""A certificate authority of a test's own, and a pair that it signed for 127.0.0.1."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificates:
    """PEM files.  As those of many clusters, they lack extensions that a default context of Python >= 3.13 requires."""

    authority: Path
    certificate: Path
    key: Path

    def trusted(self, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> ssl.SSLContext:
        """A context that trusts the authority, in every version of Python."""
        context = ssl.create_default_context(purpose, cafile=self.authority)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


def make(folder: Path) -> Certificates:
    """Make them with openssl, which every machine that has ca-certificates has."""
    ca, ca_key, pair = (
        folder / "ca.pem",
        folder / "ca.key",
        Certificates(folder / "ca.pem", folder / "x.pem", folder / "x.key"),
    )
    elliptic = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    _openssl("req", "-x509", *elliptic, "-keyout", ca_key, "-out", ca, "-subj", "/CN=test authority")
    _openssl(
        *("req", "-x509", *elliptic, "-keyout", pair.key, "-out", pair.certificate, "-subj", "/CN=127.0.0.1"),
        *("-CA", ca, "-CAkey", ca_key, "-addext", "subjectAltName=IP:127.0.0.1"),
    )
    return pair


def _openssl(*arguments: str | Path) -> None:
    ended = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="session", name="certificates")
def made_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One set for all tests."""
    return make(tmp_path_factory.mktemp("certificates"))
