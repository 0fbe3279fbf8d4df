"""What the job of a pod costs: `why` asks slurmrestd with the user's own token, if the user names slurmrestd."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from bridge.errors import BridgeError, ConfigError, said
from bridge.plugin.pods import Seen
from bridge.plugin.table import Screen
from bridge.plugin.trace import DEFAULT_WIDTH, paragraph
from bridge.plugin.variables import SLURM_URL

HOW = (
    "Kubernetes does not show what the job costs, its fair share and its limits. To see them, name slurmrestd with "
    f"--slurm-url ({SLURM_URL}), and your own token: export $(scontrol token)."
)
NOT_SHOWN = "The costs of the job are not shown:"
MAKE_ONE = "Type export $(scontrol token) on a Slurm machine, or name a file with your token: --slurm-token-file FILE."


@dataclass(frozen=True, slots=True)
class ShownCosts:
    """What a job costs, for people and for programs.

    sentence   why no costs are shown; "": the costs are shown, or there is nothing to say
    """

    lines: Sequence[str] = ()
    entry: Any = None
    sentence: str = ""

    def text(self, screen: Screen) -> list[str]:
        """The lines that follow the lines of the pod."""
        return ["", *paragraph(self.sentence, screen)] if self.sentence else list(self.lines)


async def costs_of(seen: Seen, options: argparse.Namespace) -> ShownCosts:
    """What the job of a pod costs; nothing if the pod has no job or has ended."""
    if not seen.job or seen.pod.finished:
        return ShownCosts()
    if not options.slurm_url:
        return ShownCosts(sentence="" if seen.pod.node else HOW)
    return await _asked(seen.job, options.slurm_url, options.slurm_token_file)


async def _asked(job_id: int, url: str, token_file: str) -> ShownCosts:
    import msgspec  # imported only if the user names slurmrestd

    from bridge import settings
    from bridge.cli.costs_text import costs_lines
    from bridge.connections import Connections, own_token
    from bridge.slurm.costs import costs_of_job

    try:
        async with AsyncExitStack() as stack:
            chosen = settings.load({"slurm_url": url, "slurm_token_file": token_file or None}, os.environ)
            try:
                own_token(chosen, time.time())
            except ConfigError as error:  # its advice is for admins
                return ShownCosts(sentence=f"{NOT_SHOWN} {error.what} {MAKE_ONE}")
            slurm = Connections(chosen, stack).slurm
            await slurm.discover()
            found = await costs_of_job(slurm, job_id)
    except BridgeError as error:
        return ShownCosts(sentence=f"{NOT_SHOWN} {said(error)}")
    return ShownCosts(tuple(costs_lines(found, DEFAULT_WIDTH)), msgspec.to_builtins(found))
