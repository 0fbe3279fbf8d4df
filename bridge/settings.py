"""What an admin writes: one YAML file, a few command-line options, the same by environment.

Every field is documented here and nowhere else; unknown keys are refused, and a mistake is one sentence that names the
key.  An option wins over `SLURM_BRIDGE_…`, which wins over the file, which wins over the default.
"""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from bridge.errors import ConfigError
from bridge.kube.lease import LONGEST_S, SHORTEST_S, Terms
from bridge.settings_policy import Policy, PriorityClass, Strict
from scheduler import registration as core_nodes
from scheduler.jobspec import Translation
from scheduler.names import SCHEDULER_NAME
from scheduler.plain import line
from scheduler.policy import Policy as CorePolicy
from scheduler.tuning import Config
from scheduler.tuning import Tuning as CoreTuning
from scheduler.values import GRES_NAME

ENVIRONMENT = "SLURM_BRIDGE_"
# Options that are also read from the environment, by field of Settings.
OPTIONS = (
    "kubeconfig",
    "slurm_url",
    "slurm_token_file",
    "slurm_acting_token_file",
    "slurm_user_token_dir",
    "http",
    "http_token_file",
)
NEEDED = ("kubeconfig", "slurm_url", "slurm_token_file", "policy")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
DEFAULT_GRES = {
    "nvidia.com/gpu": "gpu",
    "amd.com/gpu": "gpu",
    "gpu.intel.com/i915": "gpu",
    "nvidia.com/mig-1g.5gb": "gpu:1g.5gb",
    "nvidia.com/mig-1g.10gb": "gpu:1g.10gb",
    "nvidia.com/mig-2g.10gb": "gpu:2g.10gb",
    "nvidia.com/mig-2g.20gb": "gpu:2g.20gb",
    "nvidia.com/mig-3g.20gb": "gpu:3g.20gb",
    "nvidia.com/mig-3g.40gb": "gpu:3g.40gb",
    "nvidia.com/mig-4g.40gb": "gpu:4g.40gb",
    "nvidia.com/mig-7g.80gb": "gpu:7g.80gb",
}


class ExternalNodes(Strict):
    """Nodes that are registered in Slurm because they carry the label slurm-bridge/external-node=true (BEHAVIOUR N)."""

    reserve_cpus: int = Field(default=1, ge=0, le=4096, description="kept from Slurm on each node, for daemons")
    reserve_memory_mib: int = Field(default=1024, ge=0, description="kept from Slurm on each node, for daemons")
    feature_labels: tuple[str, ...] = Field(default=(), description="node labels whose values become Slurm features")
    topology: Mapping[str, str] = Field(
        default={}, description="name of a topology in topology.yaml to the node label that holds the node's unit there"
    )
    taint: bool = Field(default=True, description="taint them, so that other schedulers stay away (N7)")
    cure: bool = Field(
        default=False,
        description="have slurmctld reconfigure, at most every 10 min, for those of slurm.conf that do not respond to it",
    )

    @field_validator("topology")
    @classmethod
    def _names_of_topologies(cls, topology: Mapping[str, str]) -> Mapping[str, str]:
        for name in topology:
            if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
                raise ValueError(f'"{name}" is not the name of a topology in topology.yaml')
        return topology


class LeaseSettings(Strict):
    """Which of several replicas acts (BEHAVIOUR X4): the holder of a coordination.k8s.io/v1 Lease."""

    namespace: str = Field(default="slurm-bridge", min_length=1, description="of the Lease")
    name: str = Field(default="slurm-bridge", min_length=1, description="of the Lease")
    identity: str = Field(
        default="", description="this replica's name, which a restart keeps; empty: POD_NAME, else the name of the host"
    )
    duration_s: int = Field(
        default=4,
        ge=SHORTEST_S,
        le=LONGEST_S,
        description="a standby takes over so long after the last renewal; the leader stops its work a quarter earlier",
    )

    @field_validator("namespace", "name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name, re.ASCII) or len(name) > 253:
            raise ValueError(f'"{line(name, 80)}" is no name of an object in Kubernetes')
        return name

    @field_validator("identity")
    @classmethod
    def _printable(cls, identity: str) -> str:
        if not identity.isprintable() or len(identity) > 253:
            raise ValueError("must be at most 253 printable characters")
        return identity

    def terms(self, environment: Mapping[str, str]) -> Terms:
        """As the election wants it."""
        identity = self.identity or environment.get("POD_NAME") or socket.gethostname()
        return Terms(self.namespace, self.name, identity, self.duration_s)


class Tuning(Strict):
    """Times (seconds), rates (a second) and sizes of the decisions; what each means: scheduler/tuning.py."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="after")
    def _known(self) -> Tuning:
        known = asdict(CoreTuning())
        for key, value in (self.model_extra or {}).items():
            if key not in known:
                raise ValueError(f"unknown key {key}{_near(key, known)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
                raise ValueError(f"{key} must be a number of 0 or more")
            if isinstance(known[key], int) and (value < 1 or int(value) != value):
                raise ValueError(f"{key} must be a whole number of 1 or more")
            if key.endswith("_rate") and value == 0:
                raise ValueError(f"{key} must be more than 0")
        return self

    def tuning(self) -> CoreTuning:
        """As the core wants it."""
        defaults = asdict(CoreTuning())
        return CoreTuning(**{key: type(defaults[key])(value) for key, value in (self.model_extra or {}).items()})


class Settings(Strict):
    """All of it."""

    kubeconfig: str = Field(default="", description="path; empty: KUBECONFIG, else the pod's own service account")
    slurm_url: str = Field(default="", description="slurmrestd, http://HOST:PORT or https://HOST/PATH")
    slurm_token_file: str = Field(default="", description="file with the JWT of a Slurm user who may act for others")
    slurm_acting_token_file: str = Field(
        default="",
        description="token of the role that acts for users, where seeing all jobs is another's; empty: the same",
    )
    slurm_user_token_dir: str = Field(
        default="",
        description="folder with a token of each Slurm user in a file of that name: with them jobs are made, changed and "
        "ended, and slurm_token_file only needs to see all jobs; empty: one token acts for all users",
    )
    slurm_ca_file: str = Field(
        default="", description="PEM file with the authorities of slurmrestd's certificate; empty: the system's"
    )
    slurm_cert_file: str = Field(default="", description="PEM file with our client certificate for https; empty: none")
    slurm_key_file: str = Field(default="", description="PEM file with its key; empty: it is in slurm_cert_file")
    http: str = Field(default="127.0.0.1:8080", description="HOST:PORT of /healthz, /readyz and /metrics; empty: none")
    http_token_file: str = Field(
        default="",
        description="file with the bearer token that /explain and /release ask for, re-read when it changes; empty: they "
        "answer commands on this machine alone",
    )
    allow_plain_http: bool = Field(default=False, description="let the token travel unencrypted to another host (I5)")
    scheduler_name: str = Field(default=SCHEDULER_NAME, min_length=1, description="the schedulerName of our pods")
    managed_namespaces: tuple[str, ...] = Field(default=(), description="managed besides those with the label")
    policy: Policy = Field(default=Policy(), description="who a namespace is in Slurm; read anew when the file changes")
    priority_classes: Mapping[str, PriorityClass] = Field(
        default={}, description="PriorityClass to what its pods ask for in Slurm; read anew when the file changes"
    )
    gres: Mapping[str, str] = Field(default=DEFAULT_GRES, description="extended resource to GRES name (T5)")
    ignored_resources: tuple[str, ...] = Field(
        default=(),
        description='extended resources that pods may take uncounted by Slurm, as shell patterns ("rdma/*") (T5)',
    )
    default_memory_mib: int = Field(default=1024, ge=1, description="asked for pods that ask for no memory (T4)")
    device_driver: bool = Field(
        default=False,
        description="the nodes' device driver gives a pod the GPUs that its annotation job-gpus names (G1, G2)",
    )
    external_nodes: ExternalNodes = Field(default=ExternalNodes(), description="nodes that the bridge registers")
    shared_nodes: bool = Field(
        default=True, description="nodes of slurm.conf that Kubernetes has too: a cordon there drains them in Slurm"
    )
    lease: LeaseSettings | None = Field(
        default=None, description="with it several replicas may run, of which one acts; none: this is the only one"
    )
    bypass: Literal["warn", "end"] = Field(
        default="warn",
        description="pods of managed namespaces that reach a node of Slurm without a job: told and counted, or ended, too",
    )
    pending_reason: str = Field(
        default="",
        pattern="^([A-Z][A-Za-z]*)?$",
        description="reason of the condition of waiting pods; Unschedulable lets autoscalers add nodes (Q3)",
    )
    poll_interval_s: float = Field(
        default=1.1,
        ge=0.1,
        le=60,
        description="of Slurm's job states while nothing waits there; with the polls of nodes it is a call a second",
    )
    nodes_interval_s: float = Field(default=30.0, ge=1, le=3600, description="of Slurm's nodes and partitions")
    slurm_connections: int = Field(default=8, ge=1, le=64, description="to slurmrestd, one for the poll not counted")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$", description="of standard error")
    tuning: Tuning = Field(default=Tuning(), description="times, rates, sizes")

    @field_validator("gres")
    @classmethod
    def _names_of_gres(cls, gres: Mapping[str, str]) -> Mapping[str, str]:
        for resource, name in gres.items():
            if not re.fullmatch(GRES_NAME, name, re.ASCII):
                raise ValueError(
                    f'{resource}: "{name}" is not a GRES as Slurm names it (gpu, gpu:h100), without a count'
                )
        return gres

    @field_validator("slurm_url")
    @classmethod
    def _a_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets without end, a port that is no number
            usable = False
        if usable and (parts.username is not None or parts.password is not None):
            raise ValueError("must hold no user or password; the token file is the way in")
        if url and not usable:
            raise ValueError(f'"{url}" is not a URL like http://HOST:PORT')
        return url

    @model_validator(mode="after")
    def _certified(self) -> Settings:
        if self.slurm_key_file and not self.slurm_cert_file:
            raise ValueError("slurm_key_file: names a key without its certificate; name that in slurm_cert_file")
        given = [key for key in ("slurm_ca_file", "slurm_cert_file", "slurm_key_file") if getattr(self, key)]
        if given and urlsplit(self.slurm_url).scheme == "http":
            raise ValueError(f"{given[0]}: is for https, and slurm_url is {self.slurm_url}")
        return self

    @model_validator(mode="after")
    def _encrypted(self) -> Settings:
        parts = urlsplit(self.slurm_url)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and not self.allow_plain_http:
            raise ValueError(
                f"slurm_url: {self.slurm_url} would send the token unencrypted to another host; "
                "use https, or say allow_plain_http: true"
            )
        return self

    def core_policy(self, slurm_user: str) -> CorePolicy:
        """As the core wants it.  slurm_user: by whom Slurm runs; "": not known"""
        priorities = {name: each.priority() for name, each in self.priority_classes.items()}
        return self.policy.policy(slurm_user, priorities)

    def config(self, *, accounting: bool, slurm_user: str = "") -> Config:
        """As the core wants it."""
        return Config(
            policy=self.core_policy(slurm_user),
            translation=Translation(dict(self.gres), self.default_memory_mib, self.ignored_resources),
            tuning=self.tuning.tuning(),
            managed_namespaces=frozenset(self.managed_namespaces),
            scheduler_name=self.scheduler_name,
            pending_reason=self.pending_reason,
            device_driver=self.device_driver,
            external_nodes=core_nodes.ExternalNodes(**self.external_nodes.model_dump()),
            shared_nodes=self.shared_nodes,
            bypass=self.bypass,
            accounting=accounting,
        )

    @property
    def http_url(self) -> str:
        """Where a command on the same machine asks the running bridge; "" nowhere."""
        if (address := self.http_address) is None:
            return ""
        host, port = address
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared with
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port.  Raises ConfigError."""
        if not self.http:
            return None
        host, colon, port = self.http.rpartition(":")
        if not colon or not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise ConfigError(f'http: "{self.http}" is not HOST:PORT.')
        return host.strip("[]"), int(port)


def load(options: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """The settings of this run.

    options   by field name, None where not given; `config` names the file
    Raises ConfigError.
    """
    path = path_of(options, environment)
    written = {**(_read(path) if path else {}), **_given(options, environment)}
    try:
        return Settings.model_validate(written)
    except ValidationError as error:
        raise ConfigError(f"{path or 'settings'}: {_sentence(error)}", _advice(error)) from None


def usable(options: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[Settings, frozenset[str]]:
    """What can be used of settings that `load` refuses, so that somebody may look further, and the keys that are in doubt.

    Each key with a mistake is left out.  It may have been meant for any that is spelled nearly so, or for one without which
    nothing goes.  Of a file that cannot be read every key is in doubt that nothing else gives.
    """
    path, given = path_of(options, environment), _given(options, environment)
    try:
        written = {**(_read(path) if path else {}), **given}
    except ConfigError:  # `load` told of it
        chosen, _ = _without_mistakes(given)
        return chosen, frozenset(Settings.model_fields) - chosen.model_fields_set
    chosen, wrong = _without_mistakes(written)
    meant = {near for key in wrong for near in difflib.get_close_matches(key, Settings.model_fields, n=5)}
    return chosen, frozenset({*wrong, *meant, *NEEDED}) - chosen.model_fields_set


def _without_mistakes(written: Mapping[str, Any]) -> tuple[Settings, set[str]]:
    """What is left, and which keys are not."""
    wrong: set[str] = set()
    for _ in range(len(written)):  # each time one key is left out at least
        left = {key: value for key, value in written.items() if str(key) not in wrong}
        try:
            return Settings.model_validate(left), wrong
        except ValidationError as error:
            # A mistake between keys is that of a URL over which no token may travel (I5).
            wrong |= {str(each["loc"][0]) if each["loc"] else "slurm_url" for each in error.errors()}
    return Settings(), wrong


def path_of(options: Mapping[str, str | None], environment: Mapping[str, str]) -> str | None:
    """The settings file that is named; None: there is none."""
    return options.get("config") or environment.get(ENVIRONMENT + "CONFIG")


def _given(options: Mapping[str, str | None], environment: Mapping[str, str]) -> dict[str, Any]:
    """What is not in the file, by field."""
    given = {}
    for name in OPTIONS:
        value = options.get(name)
        if value is None:
            value = environment.get(ENVIRONMENT + name.upper())
        if value is not None:
            given[name] = value
    return given


def _read(path: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.", "Point --config at a settings file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        raise ConfigError(f"{path}: is not YAML{line}.", "Correct it, or point --config at a settings file.") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values.", "Write lines like key: value there.")
    return content


def _sentence(error: ValidationError) -> str:
    """The first mistake, and how many more there are."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key{_near(str(first['loc'][-1]), _keys_at(first['loc'][:-1]))}"
    more = error.error_count() - 1
    rest = f" ({more} more like it)" if more else ""
    sentence = f"{key + ': ' if key else ''}{message}{rest}"
    return sentence if sentence.endswith("?") else f"{sentence}."


def _advice(error: ValidationError) -> str:
    """ "" where the sentence says what would be right."""
    first = error.errors()[0]
    if first["type"] != "extra_forbidden" or _near(str(first["loc"][-1]), _keys_at(first["loc"][:-1])):
        return ""
    return "Take it away, or correct it: bridge/settings.py says what keys there are."


def _keys_at(place: tuple[int | str, ...]) -> list[str]:
    """The keys that may be written there."""
    model: type[BaseModel] | None = Settings
    for part in place:
        if isinstance(part, str) and model is not None and part in (written := _written(model)):
            model = _model_of(written[part].annotation)  # else it is a name of the admin's, in a mapping
    return list(_written(model)) if model is not None else []


def _written(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields, by the keys as they are written in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model in `Model`, `Model | None`, `tuple[Model, ...]` or `Mapping[str, Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_of(each)) is not None), None)


def _near(key: str, known: Any) -> str:
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
