"""A token as slurmctld makes it: a JWT with the claims exp, iat and sun, signed with HS256 and the content of jwt_hs256.key.

Measured on Slurm 26.05.5: `exp` is required, `sun` names the user (`root` is accepted, too), and `iat` and `nbf` are ignored.
Ten lines with the standard library make such a token, so no JWT library has to be trusted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping


def minted(key: bytes, user: str, issued: int, lifetime_s: int) -> str:
    """A token of that user.  issued: epoch seconds; key: all bytes of the key file, as Slurm uses them"""
    claims = {"exp": issued + lifetime_s, "iat": issued, "sun": user}
    said = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(claims)}"
    return f"{said}.{_encoded(hmac.new(key, said.encode(), hashlib.sha256).digest())}"


def _part(value: Mapping[str, object]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
