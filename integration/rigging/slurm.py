"""The rig's Slurm: slurmctld, slurmdbd with MariaDB, slurmrestd, and real slurmds for the nodes that have a slurmd.

Facts that this file rests on (Slurm 26.05):
* auth/slurm needs no munge; auth/jwt takes tokens that are signed with the key.
* Several slurmds run on one host (Debian builds that in), nodes may claim more than the host has (config_overrides), and
  slurmd wants character devices as GPU files: other names of /dev/null will do.
* slurmrestd must run neither as SlurmUser nor as root.
* AccountingStorageEnforce needs the accounts before the first job; a limit on gres/gpu needs slurmctld to have registered
  that resource in slurmdbd.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from string import Template

from . import places, rest
from .daemons import Daemon, start
from .places import Rig
from .shell import SLOW_S, output, wait

SLURM_UID = 64030  # Debian's
NOBODY = 65534
BACKUP_HOST = "rig2"  # the host name of a second slurmctld
TOKEN_SECONDS = 30 * 24 * 3600
NODE = "Sockets=1 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=512000"
GPUS = "Gres=gpu:h100:8"
GPU_CONF = "count=8,name=gpu,type=h100,file=/dev/nvidia[0-7]"
MOST_ONE_BY_ONE = 250  # external nodes; see nodes.register_played
FAST = "SchedulerParameters=batch_sched_delay=0,default_queue_depth=5000,bf_interval=2"
ENV = {"SLURM_CONF": "/rig/etc/slurm.conf", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

ACCOUNTS = (
    "add cluster rig",
    "add qos high set priority=1000",
    "add qos low set priority=1",
    "add account teama,teama-dev,teamb fairshare=50",
    "add user alice account=teama,teama-dev defaultaccount=teama qos=normal,high,low defaultqos=normal",
    "add user bob account=teamb qos=normal,low defaultqos=normal",
    "add user carol account=teamb qos=normal,low defaultqos=normal",
    "add user slurm account=root qos=normal,high,low adminlevel=admin",
)
LIMITS = "modify user bob set grptres=gres/gpu=4 maxsubmitjobs=50"


def up(rig: Rig) -> None:
    """Start it with an empty state; external nodes come later (nodes.py).  Raises RigError."""
    _furnish(rig)
    daemons = {daemon.name: daemon for daemon in all_daemons(rig)}
    start(daemons["mariadb"])
    start(daemons["slurmdbd"])
    for change in ACCOUNTS:
        output(f"sacctmgr {change}", client(rig, "sacctmgr", "-i", *change.split()), env=ENV)
    for name in ("slurmctld", "slurmrestd", *(name for name in daemons if name.startswith("slurmd-"))):
        start(daemons[name])
    wait(
        "slurmctld to tell slurmdbd of gres/gpu", lambda: _knows_gpus(rig), seconds=SLOW_S, log=daemons["slurmctld"].log
    )
    output(f"sacctmgr {LIMITS}", client(rig, "sacctmgr", "-i", *LIMITS.split()), env=ENV)


def forget(rig: Rig) -> None:
    """Empty the folder in which slurmctld keeps its state; it must not run."""
    for path in (rig.slurm / "state").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()  # the scripts of batch jobs are in folders


def client(rig: Rig, *argv: str) -> list[str]:
    """The command that runs a program in Slurm's root folder; call it with ENV."""
    return ["chroot", str(rig.root), *argv]


def all_daemons(rig: Rig) -> list[Daemon]:
    """In the order in which they start."""
    mariadb = (
        "--no-defaults --user=mysql --datadir=/rig/mysql --socket=/rig/mysql/mysql.sock --bind-address=127.0.0.1"
        f" --port={places.SQL_PORT} --innodb-flush-log-at-trx-commit=0 --innodb-log-file-size=8M"
        " --innodb-snapshot-isolation=OFF --init-file=/rig/etc/init.sql"
    )
    slurmrestd = f"-a rest_auth/jwt -u {NOBODY} -g {NOBODY} 0.0.0.0:{places.REST_PORT}"
    return [
        _daemon(rig, "mariadb", "mariadbd", mariadb, lambda: rest.greets(places.SQL_PORT)),
        # Its first start makes the tables, which takes seconds.
        _daemon(rig, "slurmdbd", "slurmdbd", "-D", lambda: rest.listens(places.DBD_PORT)),
        *_controllers(rig),
        _daemon(rig, "slurmrestd", "slurmrestd", slurmrestd, lambda: _serves(rig)),
        *(_slurmd(rig, number) for number in range(1, rig.read_options().slurmd + 1)),
    ]


def _controllers(rig: Rig) -> list[Daemon]:
    """slurmctld, and a second one if slurm.conf names BACKUP_HOST, too.  The second one does not start with the rig.

    Each recognizes itself in slurm.conf by its host's name.  Both write into one log: only one of the two acts at a time.
    """
    if BACKUP_HOST not in rig.read_options().slurm_conf:
        return [_daemon(rig, "slurmctld", "slurmctld", "-D", lambda: _pings(rig, "primary"))]
    run = rig.root / "run" / "slurmctld"  # where each has a file with its process ID
    # -i: it takes over although the first one had no time to save everything
    second = (
        f"hostname {BACKUP_HOST} && mount -t tmpfs none {run} && chown {SLURM_UID}:{SLURM_UID} {run}"
        f" && exec chroot {rig.root} slurmctld -Di"
    )
    argv, log = ("unshare", "--uts", "--mount", "--", "sh", "-c", second), rig.log / "slurmctld.log"
    return [
        _daemon(rig, "slurmctld", "slurmctld", "-D", lambda: _pings(rig, "primary"), sign="-D"),
        Daemon("slurmctld-backup", argv, "slurmctld", log, lambda: _pings(rig, "backup"), "-Di", ENV),
    ]


def token(rig: Rig, user: str, seconds: int = TOKEN_SECONDS) -> str:
    """A JWT for that user, signed with the cluster's key."""
    key = (rig.slurm / "etc" / "jwt_hs256.key").read_bytes()
    now = int(time.time())

    def part(content: bytes) -> bytes:
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    claims = json.dumps({"iat": now, "exp": now + seconds, "sun": user})
    said = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(claims.encode())
    return (said + b"." + part(hmac.new(key, said, hashlib.sha256).digest())).decode()


def _slurmd(rig: Rig, number: int) -> Daemon:
    address, port = places.slurmd_address(number), places.SLURMD_PORTS + number
    name = f"n{number}"
    # -b: when it is started, the node has booted, for which Slurm waits after it has powered the node up.
    boots = "-b " if "ResumeProgram" in rig.read_options().slurm_conf else ""
    return _daemon(
        rig, f"slurmd-{name}", "slurmd", f"-D {boots}-N {name}", lambda: rest.listens(port, address), sign=name
    )


def _daemon(rig: Rig, name: str, program: str, arguments: str, ready: Callable[[], bool], sign: str = "") -> Daemon:
    # SLURM_JWT=daemon makes slurmrestd demand a token of its clients.
    env = {**ENV, **({"SLURM_JWT": "daemon"} if name == "slurmrestd" else {})}
    argv = tuple(client(rig, program, *arguments.split()))
    return Daemon(name, argv, program, rig.log / f"{name}.log", ready, sign, env)


def _pings(rig: Rig, which: str) -> bool:
    """which: "primary" or "backup" """
    said = subprocess.run(client(rig, "scontrol", "ping"), env=ENV, capture_output=True, text=True, check=False).stdout
    return re.search(rf"\({which}\) at \S+ is UP", said) is not None


def _serves(rig: Rig) -> bool:
    """True if slurmrestd answers at all: it does so with slurmctld away, too."""
    return rest.slurm(rig).answers("/slurm/v0.0.45/ping/")


def _knows_gpus(rig: Rig) -> bool:
    return "gres|gpu" in output("sacctmgr", client(rig, "sacctmgr", "-nP", "show", "tres", "format=type,name"), env=ENV)


def _furnish(rig: Rig) -> None:
    """Folders, keys, tokens, configuration and an empty database."""
    for name in ("etc", "state", "spool", "log", "dev"):
        (rig.slurm / name).mkdir(parents=True)
    # Run folders that systemd would have made; slurmd insists on root as the owner of its own.
    for name, owner in {"slurmctld": SLURM_UID, "slurmdbd": SLURM_UID, "slurm": 0, "slurmd": 0}.items():
        folder = rig.root / "run" / name
        folder.mkdir(exist_ok=True)
        os.chown(folder, owner, owner)
    (rig.root / "etc/hosts").write_text(f"127.0.0.1 localhost {places.HOST}\n127.0.0.2 {BACKUP_HOST}\n")
    for i in range(8):
        os.mknod(rig.slurm / "dev" / f"gpu{i}", 0o20666, os.makedev(1, 3))  # a character device, the same as /dev/null
    etc = rig.slurm / "etc"
    _secret(etc / "slurm.key", secrets.token_bytes(1024))
    _secret(etc / "jwt_hs256.key", secrets.token_bytes(32))
    _write_configuration(rig, etc)
    for folder in (etc, rig.slurm / "state"):
        for path in (folder, *folder.iterdir()):
            os.chown(path, SLURM_UID, SLURM_UID)
    rig.tokens.mkdir(mode=0o700)
    for user in ("slurm", *places.USERS):
        _secret(rig.tokens / user, token(rig, user).encode() + b"\n")
    # MariaDB's files are its own user's, which only the copied numbers say.
    output("Copying the empty database", ["cp", "-a", rig.root / "srv/mysql", rig.slurm / "mysql"])


def _write_configuration(rig: Rig, etc: Path) -> None:
    options = rig.read_options()
    password = secrets.token_hex(8)
    known: dict[str, object] = {
        "host": places.HOST,
        "ctld_port": places.CTLD_PORT,
        "dbd_port": places.DBD_PORT,
        "sql_port": places.SQL_PORT,
        "sql_password": password,
        "max_nodes": options.kwok + options.slurmd + len(options.kubelets) + 1000,
    }
    stock = Template((places.HERE / "conf/slurm.conf").read_text()).substitute(known)
    lines = [stock.rstrip("\n")]
    if options.slurmd:
        span = f"[1-{options.slurmd}]"
        addresses = f"{places.slurmd_address(1).rsplit('.', 1)[0]}.{span}"
        ports = f"[{places.SLURMD_PORTS + 1}-{places.SLURMD_PORTS + options.slurmd}]"
        there = f"NodeHostname={places.HOST} NodeAddr={addresses} Port={ports}"
        lines.append(f"NodeName=n{span} {there} {NODE} {GPUS} Feature=h100 State=UNKNOWN")
    lines.append(FAST if options.fast_scheduler else "# SchedulerParameters: as Slurm ships them")
    (etc / "slurm.conf").write_text(merged("\n".join(lines), options.slurm_conf))
    gres = ["AutoDetect=off"]
    if options.slurmd:
        gres.append(f"NodeName=n[1-{options.slurmd}] Name=gpu Type=h100 File=/rig/dev/gpu[0-7]")
    if options.kwok > MOST_ONE_BY_ONE:
        # An external node's files need not exist.
        gres.append(f"NodeName=k[1-{options.kwok}] Name=gpu Type=h100 File=/dev/nvidia[0-7]")
    (etc / "gres.conf").write_text("\n".join([*gres, ""]))
    (etc / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    slurmdbd = Template((places.HERE / "conf/slurmdbd.conf").read_text()).substitute(known)
    _secret(etc / "slurmdbd.conf", slurmdbd.encode())
    (etc / "init.sql").write_text(
        "create database if not exists slurm_acct_db;\n"
        f"create user if not exists slurm@'127.0.0.1' identified by '{password}';\n"
        "grant all on slurm_acct_db.* to slurm@'127.0.0.1';\n"
    )


def merged(stock: str, own: str) -> str:
    """A slurm.conf in which each own line replaces the stock lines of the same key: Slurm takes no key twice."""
    replaced = {_key(line) for line in own.splitlines()} - {""}
    kept = [line for line in stock.splitlines() if _key(line) not in replaced]
    return "\n".join([*kept, *own.splitlines(), ""])


def _key(line: str) -> str:
    """The name of the setting in a line: "maxnodecount", "partitionname=low"; "" for a line without one."""
    found = re.match(r"\s*(\w+)\s*=\s*(\S*)", line)
    if not found:
        return ""
    key = found[1].lower()
    return f"{key}={found[2]}" if key in ("partitionname", "nodename", "nodeset") else key


def _secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
