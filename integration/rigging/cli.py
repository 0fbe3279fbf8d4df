"""The command line of the rig.

Commands about a rig as a whole work from outside its namespaces; commands about what runs in it call this program again
inside them (`--inside`), which a person never types.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from . import (
    bridge_image,
    build,
    collector,
    compose_images,
    compose_programs,
    daemons,
    kube,
    kubelets,
    nodes,
    packages,
    places,
    slurm,
    space,
)
from .daemons import Daemon
from .places import Options, Rig
from .shell import SLOW_S, RigError

SLURM_CLIENTS = (
    "sacct",
    "sacctmgr",
    "salloc",
    "sbatch",
    "scancel",
    "scontrol",
    "sdiag",
    "sinfo",
    "sprio",
    "squeue",
    "srun",
    "sshare",
)
DAEMONS = (
    "slurmctld",
    "slurmctld-backup",
    "slurmrestd",
    "slurmdbd",
    "mariadb",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kwok",
)
ACTS = ("stop", "start", "kill", "pause", "resume", "forget")
# Inside `rig run` it is the rig that one is in.
DEFAULT_NAME = os.environ.get("RIG_NAME", "rig1")


def main(arguments: Sequence[str]) -> int:
    """Run one command.  Returns the exit code: 0, 1 for a failure that a sentence explains, 2 for a wrong call."""
    try:
        if arguments[:1] == [space.HOLD]:
            space.hold(Rig(Path(arguments[1]).name))
        if arguments[:1] == [kubelets.NODE]:
            return kubelets.be_node(Rig(arguments[1]), arguments[2])
        if arguments[:1] == ["--inside"]:
            return _inside(Rig(arguments[1]), arguments[2:])
        code = _command(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except RigError as error:
        print(f"rig: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if arguments[:1] != ["--inside"]:  # the caller of that says it
            print("rig: interrupted", file=sys.stderr)
        return 130


def _command(arguments: Sequence[str]) -> int:
    if arguments and (arguments[0] == "slurm" or arguments[0] in SLURM_CLIENTS):
        return _slurm_client(arguments[1:] if arguments[0] == "slurm" else arguments)
    asked = _parser(arguments[0] if arguments else "").parse_args(arguments)
    if asked.command in BUILDS:
        print(BUILDS[asked.command](asked))
        return 0
    if asked.command == "list":
        return _list()
    rig = Rig(asked.name)
    if asked.command == "up":
        return _up(rig, asked)
    if asked.command == "down":
        return _down(rig)
    if asked.command == "env":
        return _env(rig)
    if asked.command == "run":
        return _run(rig, asked.argv)
    if asked.command == "status":
        return space.inside(rig, "status")
    if asked.command == "load":
        return space.inside(rig, "load", str(asked.archive.absolute()))
    return space.inside(rig, asked.command, asked.act)


def _build(_: argparse.Namespace) -> str:
    build.build(kubelets=kubelets.possible())
    return f"rig: everything is in {places.cache()}"


def _build_image(asked: argparse.Namespace) -> str:
    return str(bridge_image.build(asked.version, asked.repository))


def _build_compose(_: argparse.Namespace) -> str:
    compose_images.make()
    return f"rig: the images of docker-compose.yml are in {places.cache()}"


def _build_prometheus(_: argparse.Namespace) -> str:
    compose_programs.build_prometheus()
    return f"rig: prometheus and promtool are in {places.cache()}"


def _build_collector(_: argparse.Namespace) -> str:
    collector.build()
    return f"rig: an OpenTelemetry Collector is in {places.cache()}"


# Commands that only fill the cache; each returns what is printed.
BUILDS: dict[str, Callable[[argparse.Namespace], str]] = {
    "build": _build,
    "image": _build_image,
    "compose": _build_compose,
    "prometheus": _build_prometheus,
    "collector": _build_collector,
}


def _parser(command: str) -> argparse.ArgumentParser:
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default=DEFAULT_NAME, help=f"which rig (default: {DEFAULT_NAME})")
    parser = argparse.ArgumentParser(
        prog="integration/rig",
        description="A real Slurm and a real Kubernetes on this machine, in namespaces of their own.",
        epilog=f"Slurm's own commands ({', '.join(SLURM_CLIENTS)}, or: slurm PROGRAM …) run as Slurm's administrator: "
        "integration/rig squeue [--name NAME] …; --name comes first, since some of them have one of their own.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("build", help="bring everything that is slow to get into the cache")
    image = commands.add_parser("image", help="build the bridge's container image; print the path of its archive")
    image.add_argument("--version", default="0.1.0", help="its tag (default: 0.1.0)")
    image.add_argument("--repository", default=bridge_image.NAME, help=f"its name (default: {bridge_image.NAME})")
    commands.add_parser("compose", help="build stand-ins for the images of docker-compose.yml, and what runs it")
    commands.add_parser("prometheus", help="build prometheus and promtool")
    commands.add_parser("collector", help="build an OpenTelemetry Collector")
    _add_up(commands, named)
    commands.add_parser("down", parents=[named], help="end a rig and remove what it left")
    commands.add_parser("env", parents=[named], help="print the environment that finds the rig, for a shell to read")
    run = commands.add_parser("run", parents=[named], help="run a command in the rig's network, with that environment")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD …")
    load = commands.add_parser("load", parents=[named], help="give every node with a kubelet the image of an archive")
    load.add_argument("archive", type=Path, metavar="ARCHIVE")
    commands.add_parser("status", parents=[named], help="what runs in a rig")
    commands.add_parser("list", help="the rigs that are up")
    for name in DAEMONS:
        daemon = commands.add_parser(name, parents=[named], help=f"{'|'.join(ACTS)}: {name} alone")
        daemon.add_argument("act", choices=ACTS)
    for kind in ("slurmd-nN", "kubelet-xN"):
        commands.add_parser(kind, help=f"{'|'.join(ACTS)}: one node's daemon alone; a kubelet ends with its containers")
    if re.fullmatch(r"(slurmd-n|kubelet-x)[1-9]\d*", command):  # whether the rig has it is known inside
        commands.add_parser(command, parents=[named]).add_argument("act", choices=ACTS)
    return parser


def _add_up(commands: Any, named: argparse.ArgumentParser) -> None:
    up = commands.add_parser("up", parents=[named], help="start a rig")
    up.add_argument("--fresh", action="store_true", help="end it first if it is up")
    up.add_argument(
        "--kubelets", type=_count(100), default=2, metavar="N", help="nodes x1..xN with a real kubelet (default: 2)"
    )
    up.add_argument("--no-kubelets", action="store_const", dest="kubelets", const=0, help="no real kubelets")
    up.add_argument(
        "--kwok", type=_count(60000), default=4, metavar="N", help="nodes k1..kN that kwok plays (default: 4)"
    )
    up.add_argument(
        "--slurmd", type=_count(50), default=1, metavar="N", help="nodes n1..nN with a real slurmd (default: 1)"
    )
    up.add_argument(
        "--fast-scheduler",
        action="store_true",
        help="scheduler parameters made for latency; default: as Slurm ships them",
    )
    up.add_argument(
        "--slurm-conf",
        type=Path,
        metavar="FILE",
        help="lines for slurm.conf, instead of the rig's own of the same keys",
    )


def _count(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) > most:
            raise argparse.ArgumentTypeError(f"a number from 0 to {most} is wanted")
        return int(text)

    return parse


def _up(rig: Rig, asked: argparse.Namespace) -> int:
    options = _options(asked)
    build.build(kubelets=bool(options.kubelets))
    began = time.monotonic()
    (places.cache() / "rigs").mkdir(exist_ok=True)
    with build.lock(places.cache() / "rigs" / f"{rig.name}.lock", f"another command starts or ends rig {rig.name}"):
        if space.holder(rig) is not None:
            if not asked.fresh and rig.ready.exists():
                print(f"rig: {rig.name} is up already (--fresh starts it anew)")
                print(_usage(rig))
                return 0
            if not asked.fresh:
                raise RigError(
                    f"Rig {rig.name} was started but did not come up wholly: --fresh starts it anew, `down` ends it."
                )
        _remove(rig)
        _start(rig, options)
        rig.ready.write_text(f"{time.monotonic() - began:.1f}\n")
    print(f"rig: {rig.name} is up after {rig.ready.read_text().strip()} s")
    print(_usage(rig))
    return 0


def _options(asked: argparse.Namespace) -> Options:
    names = tuple(f"x{i}" for i in range(1, asked.kubelets + 1))
    if names and not kubelets.possible():
        print("rig: kubelets are left out: they are made for cgroup v1, and this machine has cgroup v2 only")
        names = ()
    try:
        own = asked.slurm_conf.read_text() if asked.slurm_conf else ""
    except OSError as error:
        raise RigError(f"--slurm-conf {asked.slurm_conf}: {error.strerror}.") from error
    return Options(names, asked.kwok, asked.slurmd, asked.fast_scheduler, own)


def _start(rig: Rig, options: Options) -> None:
    """Bring up an empty rig.  If that fails or is interrupted, the rig is taken down, except for its logs."""
    rig.log.mkdir(parents=True)
    rig.slurm.mkdir()
    rig.write_options(options)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        space.make(rig)
        if space.inside(rig, "up") != 0:
            raise RigError(f"Rig {rig.name} did not come up, and is taken down again; its logs are kept in {rig.log}.")
    except BaseException:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it
        space.end(rig)
        raise


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _down(rig: Rig) -> int:
    was = space.holder(rig) is not None
    space.end(rig)  # before the lock, so that it ends an `up` that still runs
    (places.cache() / "rigs").mkdir(parents=True, exist_ok=True)
    with build.lock(places.cache() / "rigs" / f"{rig.name}.lock", f"another command starts or ends rig {rig.name}"):
        _remove(rig)
    print(f"rig: {rig.name} is down" if was else f"rig: {rig.name} was not up")
    return 0


def _remove(rig: Rig) -> None:
    space.end(rig)
    if rig.state.exists():
        shutil.rmtree(rig.state)


def _list() -> int:
    for folder in sorted((places.cache() / "rigs").glob("*/")):
        rig = Rig(folder.name)
        if space.holder(rig) is not None:
            print(
                rig.name,
                f"up, it took {rig.ready.read_text().strip()} s" if rig.ready.exists() else "starting, or failed to",
            )
    return 0


def environment(rig: Rig) -> dict[str, str]:
    """The environment variables with which a program inside the rig's network finds the rig."""
    options = rig.read_options()
    return {
        "KUBECONFIG": str(rig.kubeconfig),
        "SLURM_REST": places.SLURM_REST,
        "SLURM_TOKEN_FILE": str(rig.tokens / "slurm"),
        "RIG_NAME": rig.name,
        "RIG_STATE": str(rig.state),
        "RIG_TOKENS": str(rig.tokens),
        "RIG_KUBELETS": " ".join(options.kubelets),
        "RIG_KWOK": str(options.kwok),
        "RIG_SLURMD": " ".join(f"n{i}" for i in range(1, options.slurmd + 1)),
        "RIG_IMAGE": places.IMAGE,
        "PATH": f"{places.program('kubectl').parent}:{places.program('helm').parent}:{os.environ.get('PATH', packages.PATH)}",
    }


def _env(rig: Rig) -> int:
    _demand(rig)
    for name, value in environment(rig).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _run(rig: Rig, argv: Sequence[str]) -> NoReturn:
    argv = argv[1:] if argv[:1] == ["--"] else argv
    if not argv:
        raise RigError("Say what to run: integration/rig run -- kubectl get nodes")
    command = space.network_of(rig, argv)
    os.execvpe(packages.find(command[0]) or command[0], command, {**os.environ, **environment(rig)})


def _demand(rig: Rig) -> None:
    if space.holder(rig) is None:
        raise RigError(f"Rig {rig.name} is not up: integration/rig up --name {rig.name}")


def _slurm_client(arguments: Sequence[str]) -> int:
    """`squeue [--name NAME] ARGS…`: what follows is for the program, which may have a --name of its own."""
    program, *others = arguments or [""]
    if not program:
        raise RigError("Say which program: integration/rig slurm squeue")
    name = DEFAULT_NAME
    if others[:1] == ["--name"] and len(others) > 1:
        name, others = others[1], others[2:]
    return space.inside(Rig(name), "slurm", program, *others)


def _usage(rig: Rig) -> str:
    this, name = "integration/rig", f"--name {rig.name}"
    return f"""\
  {this} run {name} -- kubectl get nodes     a command in the rig's network (or: -- bash)
  {this} sinfo {name}                        Slurm's commands, as its administrator
  {this} slurmctld stop {name}               stop, start, kill, pause, resume a daemon
  eval "$({this} env {name})"                the environment alone: KUBECONFIG, SLURM_REST, SLURM_TOKEN_FILE …
  {this} down {name}                         end it
  logs: {rig.log}   tokens of slurm, alice, bob, carol: {rig.tokens}"""


# Inside the namespaces.


def _inside(rig: Rig, arguments: Sequence[str]) -> int:
    command, *more = arguments
    if command == "up":
        _bring_up(rig)
        return 0
    if command == "slurm":
        return _become_slurm_client(rig, more)
    if command == "load":
        kubelets.load(rig, Path(more[0]))
        return 0
    known = {
        daemon.name: daemon for daemon in [*slurm.all_daemons(rig), *kube.all_daemons(rig), *kubelets.all_daemons(rig)]
    }
    if command == "status":
        for daemon in known.values():
            print(f"{daemon.name:25} {_state(daemon)}")
        return 0
    if command not in known:
        raise RigError(f"Rig {rig.name} has no {command}; it has {', '.join(known)}.")
    if more[0] == "forget":
        _forget(rig, known[command])
    else:
        _act(known[command], more[0])
    return 0


def _become_slurm_client(rig: Rig, argv: Sequence[str]) -> NoReturn:
    os.execvpe(
        "chroot", slurm.client(rig, *argv), {**slurm.ENV, "TERM": os.environ.get("TERM", "dumb"), "LC_ALL": "C.UTF-8"}
    )


def _state(daemon: Daemon) -> str:
    found = daemons.processes(daemon)
    return f"runs ({len(found)} {'process' if len(found) == 1 else 'processes'})" if found else "is stopped"


def _act(daemon: Daemon, act: str) -> None:
    if act == "kill":
        daemons.stop(daemon, how=signal.SIGKILL)
    else:
        {"start": daemons.start, "stop": daemons.stop, "pause": daemons.pause, "resume": daemons.resume}[act](daemon)


def _forget(rig: Rig, daemon: Daemon) -> None:
    """slurmctld dies and restarts without its state: no job is left, and its external nodes are created again."""
    if daemon.name != "slurmctld":
        raise RigError(f"Only slurmctld can forget what it knew, not {daemon.name}.")
    daemons.stop(daemon, how=signal.SIGKILL)
    slurm.forget(rig)
    daemons.start(daemon)
    nodes.register_played(rig)
    nodes.register_kubelets(rig)


def _bring_up(rig: Rig) -> None:
    """Slurm and Kubernetes side by side, then what needs both."""
    ends = (_bring_up_slurm, _bring_up_kubernetes)
    pool = ThreadPoolExecutor(len(ends))
    for done in as_completed([pool.submit(end, rig) for end in ends]):
        if error := done.exception():
            # The other end may wait for something for a minute yet; it ends with the rig, so do not wait for it.
            if not isinstance(error, RigError):
                traceback.print_exception(error)
            print(f"rig: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    nodes.register_kubelets(rig)
    nodes.wait_usable(rig)


def _bring_up_slurm(rig: Rig) -> None:
    slurm.up(rig)
    nodes.register_played(rig)


def _bring_up_kubernetes(rig: Rig) -> None:
    kube.up(rig)
    nodes.create_played(rig)
    kubelets.up(rig)
    nodes.wait_ready(rig, seconds=SLOW_S + rig.read_options().kwok / 50)
