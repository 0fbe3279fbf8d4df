"""The command line: `slurm-bridge run`, and `slurm-bridge dev` for a look without any cluster."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from bridge.errors import ConfigError

EXIT_CONFIG = 2


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line that says what is wrong and what to do."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except ConfigError as error:
        print(f"slurm-bridge: {error}", file=sys.stderr)  # noqa: T201 - the one line
        return EXIT_CONFIG
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-bridge", description="A Kubernetes scheduler that asks Slurm for the nodes."
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    ends = _ends()
    run = commands.add_parser("run", parents=[ends], help="schedule pods of a Kubernetes cluster through Slurm")
    run.add_argument("--http", metavar="HOST:PORT", help="of /healthz, /readyz, /metrics; default 127.0.0.1:8080")
    run.set_defaults(command=_run)
    doctor = commands.add_parser("doctor", parents=[ends], help="check both ends, and say what to do; changes nothing")
    doctor.add_argument("-o", dest="output", choices=("text", "json"), default="text", help="how to print it")
    doctor.set_defaults(command=_doctor)
    dev = commands.add_parser("dev", help="the main job on two simulated clusters, in this terminal")
    dev.add_argument("--seed", type=int, default=1, help="what happens follows from it")
    dev.add_argument("--pods", type=int, default=8, help="how many")
    dev.set_defaults(command=_dev)
    return parser


def _ends() -> argparse.ArgumentParser:
    """Where both ends are: the same options for every command that talks to them."""
    ends = argparse.ArgumentParser(add_help=False)
    ends.add_argument("--config", metavar="FILE", help="settings, YAML (SLURM_BRIDGE_CONFIG)")
    ends.add_argument("--kubeconfig", metavar="FILE", help="default: KUBECONFIG, else the pod's own service account")
    ends.add_argument("--slurm-url", metavar="URL", help="slurmrestd, http://HOST:PORT (SLURM_BRIDGE_SLURM_URL)")
    ends.add_argument("--slurm-token-file", metavar="FILE", help="JWT of a Slurm user who may act for others")
    return ends


def _version() -> str:
    from importlib.metadata import version

    return f"slurm-bridge {version('slurm-bridge')}"


def _run(options: argparse.Namespace) -> int:
    from bridge import app, settings

    chosen = settings.load(vars(options), os.environ)
    logging.basicConfig(
        level=chosen.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    asyncio.run(app.run(chosen))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from bridge.doctor.command import main as doctor

    return doctor(vars(options))


def _dev(options: argparse.Namespace) -> int:
    from bridge.dev.demo import main as demo

    return demo(seed=options.seed, pods=options.pods)


if __name__ == "__main__":
    sys.exit(main())
