"""Asks the running bridge about all nodes, because a user of a namespace may neither read nodes nor ask Slurm.

bridge/http_access.py decides which requests the bridge answers.  If the bridge gives no answer, an error says what to do.
"""

from __future__ import annotations

import msgspec

from bridge.cli import bridge_client
from bridge.cli.bridge_client import NoBridgeError
from bridge.errors import ConfigError
from bridge.node_survey import Survey
from bridge.plugin.variables import BRIDGE_TOKEN_FILE, BRIDGE_URL

DEADLINE_S = 20.0
WHERE = f"Name its address with --bridge URL or {BRIDGE_URL}; your admin knows it."
TOKEN = (
    f"Name a file with its token: --http-token-file FILE, or {BRIDGE_TOKEN_FILE}. Your admin has the token "
    "(setting http_nodes_token_file)."
)
_SURVEY = msgspec.json.Decoder(Survey)


async def asked(url: str, token_file: str) -> Survey:
    """The answer of the bridge at that address.

    token_file   a file with the bearer token of the bridge; "": no token is sent
    Raises ConfigError if the bridge gives no answer that can be used.
    """
    at = bridge_client.address(url)
    try:
        answer = await bridge_client.ask("GET", f"{at}/nodes", within_s=DEADLINE_S, token_file=token_file)
    except NoBridgeError as error:
        hint = "Another program answers there." if error.listening else ""
        raise ConfigError(f"no slurm-bridge answers at {at}. {hint}".strip(), WHERE) from None
    if foreign := answer.foreign(at):
        raise ConfigError(foreign, WHERE)
    if answer.status == 401:
        which = "does not accept this token." if token_file else "asks for a token."
        raise ConfigError(f"the bridge at {at} {which}", TOKEN)
    if answer.status == 403:
        raise ConfigError(f"the bridge at {at} answers this only on its own machine.", "Ask your admin for a token.")
    if answer.status != 200:
        raise ConfigError(f"the bridge at {at} does not answer now: {answer.reason}")
    try:
        return _SURVEY.decode(answer.body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ConfigError(f"the answer of {at} is not of this version of slurm-bridge.", WHERE) from None
