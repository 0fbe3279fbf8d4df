"""PEM texts of tests."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bridge.webhook.certificates import Made, make

NOW = 1_800_000_000.0
DAY = 86_400.0
NAMES = ("slurm-bridge-webhook.slurm-bridge.svc", "127.0.0.1", "::1")


def made(now: float = NOW, life_s: float = 90 * DAY) -> Made:
    return make(NAMES, now, life_s)


def encrypted(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )


def another_key() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
