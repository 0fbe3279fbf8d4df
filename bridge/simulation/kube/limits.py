"""What the simulated API server does not do, as the sentences that it answers.

If the request is refused, the sentence is in the Status.  If the request is served, the sentence is a Warning, which kubectl
prints.  docs/dev.md lists the limits; a journey compares everything else with a real API server.
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
