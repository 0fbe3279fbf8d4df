"""`slurm-bridge release`: the admin confirms that jobs that Slurm no longer lists are gone (X6).

When many jobs vanish within seconds, the bridge ends no pod for it.  This command confirms to the running bridge
that the jobs missing now are gone.  Their nodes are asked for once more (S7).  If Slurm refuses that for a pod, the pod is
ended.
The bridge accepts the command only from the machine (or the pod) that it runs on, or with the token of the setting
`http_token_file`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from bridge import settings
from bridge.cli import bridge_client
from bridge.cli.bridge_client import NoBridgeError
from bridge.cli.terminal import printable, say
from bridge.errors import ConfigError
from bridge.http_access import HEADER

DEADLINE_S = 10.0
WHERE = "Run this command on the bridge's machine, or name its address: --bridge URL."


def main(options: Mapping[str, str | None]) -> int:
    """Exit code 0, and one line with what was released.  Raises ConfigError if no bridge accepts it.

    options   by field of Settings; `bridge`
    """
    chosen = settings.load(options, os.environ)
    url = options.get("bridge") or chosen.http_url
    if not url:
        raise ConfigError("the settings name no http address of the bridge.", "Name it: --bridge URL.")
    url = bridge_client.address(url)
    say(printable(asyncio.run(ask(url, chosen.http_token_file))))
    return 0


async def ask(url: str, token_file: str = "") -> str:
    """The answer of the bridge.  Raises ConfigError."""
    try:
        answer = await bridge_client.ask(
            "POST", f"{url}/release", within_s=DEADLINE_S, headers={HEADER: "release"}, token_file=token_file
        )
    except NoBridgeError:
        raise ConfigError(f"no bridge answers at {url}.", WHERE) from None
    if foreign := answer.foreign(url):
        raise ConfigError(foreign, WHERE)
    if answer.status != 200:
        raise ConfigError(f"{url} did not accept the confirmation: {answer.reason}")
    return answer.text
