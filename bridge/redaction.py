"""Removes the token of a request from its answer.

A proxy may show the headers of a request in its error page.  Texts of answers are part of messages, logs and conditions of
pods, which more people read than may have the token.
"""

from __future__ import annotations

HIDDEN = b"[token]"


def without(credential: str, body: bytes) -> bytes:
    """The body with HIDDEN in place of the token.

    credential   the header that carried the token, with its scheme ("Bearer …") or without; "": no token was sent
    """
    secret = credential.rpartition(" ")[2].encode()
    return body.replace(secret, HIDDEN) if secret and secret in body else body
