"""Environment variables of `kubectl slurm`, and the default address of the bridge.

They are in a file of their own, because the shell's completion needs only the options, and must be fast.
"""

from __future__ import annotations

BRIDGE_URL = "SLURM_BRIDGE_URL"
BRIDGE_TOKEN_FILE = "SLURM_BRIDGE_HTTP_TOKEN_FILE"  # noqa: S105 - the name of a variable
DEFAULT_BRIDGE = "http://127.0.0.1:8080"  # a bridge on this machine, or a port-forward
SLURM_URL = "SLURM_BRIDGE_SLURM_URL"
SLURM_TOKEN = "SLURM_JWT"  # noqa: S105 - the name of a variable
