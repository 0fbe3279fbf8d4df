"""`kubectl slurm` as its user has it: kubectl, and the two programs of the plugin in PATH."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = {"kubectl-slurm": "main", "kubectl_complete-slurm": "complete"}
OF_ADMINS = ("KUBECONFIG", "SLURM_JWT", "SLURM_REST", "SLURM_TOKEN_FILE")


def installed(folder: Path) -> None:
    """Put the two programs into that folder, as an installation of the package does."""
    for name, function in PROGRAMS.items():
        program = folder / name
        program.write_text(
            f"#!{sys.executable}\nimport sys\nfrom bridge.plugin.command import {function}\nsys.exit({function}())\n"
        )
        program.chmod(0o755)


def environment(folder: Path, kubeconfig: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a user whose programs are in that folder, without what admins have.  more: what is set besides"""
    kept = {name: value for name, value in os.environ.items() if name not in OF_ADMINS}
    own = {"PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig), "PYTHONPATH": os.getcwd()}
    return kept | own | dict(more or {})
