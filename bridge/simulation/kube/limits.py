"""What the simulated API server does not do, in the sentence with which it says so.

A refusal's sentence is its Status; where the request is served all the same, the sentence is a Warning, which kubectl prints.
docs/dev.md lists the limits; a journey holds everything else equal to a real API server.
"""

from __future__ import annotations

NO_PROGRAM = "simulated containers run no program, so there is nothing to execute in, attach to, copy or forward"
NO_LOGS = "simulated containers run no program, so they write no logs"
NO_TOKENS = "the simulated API server makes no tokens: it authenticates no one, and takes requests without a token"
NO_ACCESS_RULES = "the simulated API server authenticates no one and allows every request"
NO_CONTROLLER = "the simulated cluster stores a {kind}, and no controller acts on it"
NO_FIELD_OWNERS = "the simulated API server merges what is applied: fields have no owners, so no conflict is found"
NO_SUCH_KIND = 'the simulated API server does not serve "{plural}" of {version}'


def warning(sentence: str) -> dict[str, str]:
    """The header with which a server warns."""
    return {"warning": f'299 - "{sentence}"'}
