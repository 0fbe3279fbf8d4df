"""The settings: one YAML file, a few command-line options, and environment variables for the same options.

Every setting is declared and documented once: here, in settings_policy.py, or in the dataclass of the scheduler that uses it
(`scheduler.model.setting`).  docs/settings.md and the schema of the Helm chart are generated from the descriptions (`make
reference`, `make chart-schema`).  The first line of a description says what the setting means, the second one when to change
it.  Unknown keys are refused, and a mistake is one sentence that names the key.  An option wins over `SLURM_BRIDGE_…`, which
wins over the file, which wins over the default.
"""

from __future__ import annotations

import difflib
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from bridge.errors import ConfigError
from bridge.kube.lease import LONGEST_S, SHORTEST_S, Terms
from bridge.settings_mistakes import MISSING, UNKNOWN_KEY, in_words, place
from bridge.settings_policy import GresName, Policy, Priority, Strict
from bridge.unique_keys import DuplicateKeyError, UniqueKeyLoader
from scheduler.model.text import line
from scheduler.names import SCHEDULER_NAME
from scheduler.nodes.registration import ExternalNodes
from scheduler.policy.rules import Policy as CorePolicy
from scheduler.translate.job_spec import Translation
from scheduler.tuning import Config, Tuning

ENVIRONMENT = "SLURM_BRIDGE_"
MOST_SHOWN = 5  # mistakes in the file
MOST_OF_SENTENCE = 400  # characters
MOST_CHARACTERS = 2**22  # of the file; a ConfigMap takes a quarter of this
STANDARD_INPUT = "standard input"  # the file that `-` names: settings that are checked before they are in force
# Options that are also read from the environment, by field of Settings.
OPTIONS = (
    "kubeconfig",
    "slurm_url",
    "slurm_token_file",
    "slurm_acting_token_file",
    "slurm_user_token_dir",
    "http",
    "http_token_file",
    "http_nodes_token_file",
)
NEEDED = ("kubeconfig", "slurm_url", "slurm_token_file", "policy")
REASON = "[A-Z][A-Za-z]*"  # of a condition in Kubernetes
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


def _names_of_topologies(nodes: ExternalNodes) -> ExternalNodes:
    for name in nodes.topology:
        if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            raise ValueError(f'"{name}" under topology is not the name of a topology in topology.yaml')
    return nodes


class LeaseSettings(Strict):
    """Which of several replicas acts: the holder of a coordination.k8s.io/v1 Lease."""

    namespace: str = Field(
        default="slurm-bridge",
        min_length=1,
        description="Namespace of the Lease.\nChange it if the bridge runs in another namespace; change its Role, too.",
    )
    name: str = Field(
        default="slurm-bridge",
        min_length=1,
        description="Name of the Lease.\nChange it if two bridges use one namespace; change its Role, too.",
    )
    identity: str = Field(
        default="",
        description="Name of this replica in the Lease. Empty: the environment variable `POD_NAME`, else the host "
        "name. A restart must keep the name.\n"
        "Set it if two replicas run on one host.",
    )
    duration_s: int = Field(
        default=4,
        strict=True,
        ge=SHORTEST_S,
        le=LONGEST_S,
        description="A standby takes over when it has seen no renewal for this time. The leader stops its work when "
        "three quarters of this time have passed without a confirmed renewal.\n"
        "Raise it (to 15, for example) if the lead changes because the API server is slow.",
    )

    @field_validator("namespace", "name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name, re.ASCII) or len(name) > 253:
            raise ValueError(f'"{line(name, 80)}" is not a valid name of a Kubernetes object')
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


class Settings(Strict):
    """All settings."""

    kubeconfig: str = Field(
        default="",
        description="Path of a kubeconfig file. Empty: the files of the environment variable `KUBECONFIG`, else "
        "`~/.kube/config`, else the service account of the pod.\n"
        "Set it if the bridge runs outside Kubernetes and must not use the kubeconfig of kubectl.",
    )
    slurm_url: str = Field(
        default="",
        description="URL of slurmrestd: `http://HOST:PORT` or `https://HOST/PATH`, without user and password.\nRequired.",
    )
    slurm_token_file: str = Field(
        default="",
        description="File with the JWT of a Slurm user who may act for other users (SlurmUser or root). The bridge "
        "reads the file again when it changes.\n"
        "Required.",
    )
    slurm_acting_token_file: str = Field(
        default="",
        description="File with the JWT for requests that act as a user or change nodes. `slurm_token_file` is then "
        "used for reading alone. Empty: one token serves for both.\n"
        "Set it if the token that reads belongs to an operator instead of SlurmUser.",
    )
    slurm_user_token_dir: str = Field(
        default="",
        description="Folder with the JWT of each Slurm user, in a file of the user's name. Jobs are then made, changed and "
        "ended with the user's own token, and `slurm_token_file` only needs to see all jobs. Empty: one token acts for "
        "all users.\n"
        "Set it if the bridge must not have a token that acts for every user.",
    )
    slurm_ca_file: str = Field(
        default="",
        description="PEM file with the authorities that sign the certificate of slurmrestd. Empty: the authorities of "
        "the system.\n"
        "Set it if slurmrestd is behind https with a private authority.",
    )
    slurm_cert_file: str = Field(
        default="",
        description="PEM file with the client certificate for https. Empty: the bridge sends no client certificate.\n"
        "Set it if the proxy before slurmrestd asks for a client certificate.",
    )
    slurm_key_file: str = Field(
        default="",
        description="PEM file with the key of `slurm_cert_file`. Empty: the key is in `slurm_cert_file`.\n"
        "Set it if key and certificate are in two files.",
    )
    http: str = Field(
        default="127.0.0.1:8080",
        description="HOST:PORT where the bridge answers /healthz, /readyz, /metrics, /explain, /nodes and /release, and "
        "shows its page (docs/page.md). Empty: it answers none of them.\n"
        "Set it to `:8080` if probes or Prometheus come from other machines.",
    )
    http_token_file: str = Field(
        default="",
        description="File with the bearer token that requests for /explain, /nodes, /release and what the page shows "
        "must carry. The bridge reads the file again when it changes. Empty: the bridge answers these only to programs on "
        "its own machine.\n"
        "Set it if `explain` or `release` is called, or the page is opened, from another machine.",
    )
    http_nodes_token_file: str = Field(
        default="",
        description="File with a bearer token that opens /nodes alone: what each node has and what is free, as sums, and no "
        "pod. The token of `http_token_file` opens /nodes, too. Empty: no other token does.\n"
        "Set it if users of namespaces may ask with `kubectl slurm nodes` and `kubectl slurm free`.",
    )
    allow_plain_http: bool = Field(
        default=False,
        description="Allows a `slurm_url` with http to another host: the Slurm token then travels unencrypted.\n"
        "Set it to true only if the network between bridge and slurmrestd is trusted.",
    )
    scheduler_name: str = Field(
        default=SCHEDULER_NAME,
        min_length=1,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="The bridge schedules pods with this `spec.schedulerName`.\n"
        "Change it if two bridges work in one Kubernetes cluster.",
    )
    managed_namespaces: tuple[str, ...] = Field(
        default=(),
        description="Namespaces whose pods may use the bridge, in addition to those with the label "
        "`slurm-bridge/managed=true`.\n"
        "Set it if you cannot label a namespace.",
    )
    policy: Policy = Field(
        default=Policy(),
        description="Maps namespaces to Slurm users, and limits what their pods may ask for. The running bridge reads "
        "it again when the file changes.\n"
        "Required: without a rule every pod is refused.",
    )
    priority_classes: Mapping[str, Priority] = Field(
        default={},
        description="Maps the name of a PriorityClass to what its pods ask for in Slurm. The running bridge reads it "
        "again when the file changes.\n"
        "Set it if users choose priorities by PriorityClass.",
    )
    gres: Mapping[str, GresName] = Field(
        default=DEFAULT_GRES,
        description="Maps an extended resource of Kubernetes to a GRES of Slurm, `name` or `name:type`, without a "
        "count. What is written replaces the default.\n"
        "Set it if nodes have devices that the default does not name.",
    )
    ignored_resources: tuple[str, ...] = Field(
        default=(),
        description="Extended resources that pods may use and that Slurm does not count, as shell patterns (`rdma/*`).\n"
        "Set it if pods are refused for a resource that needs no place in Slurm.",
    )
    default_memory_mib: int = Field(
        default=1024,
        strict=True,
        ge=1,
        description="Memory that the job of a pod asks for if the pod has no memory request and no memory limit.\n"
        "Change it if pods without requests commonly need more.",
    )
    device_driver: bool = Field(
        default=False,
        description="The device driver of the nodes gives a pod the GPUs that its annotation `job-gpus` names.\n"
        "Set it to true if all nodes with devices have such a driver.",
    )
    external_nodes: Annotated[ExternalNodes, AfterValidator(_names_of_topologies)] = Field(
        default=ExternalNodes(),
        description="How the bridge registers Kubernetes nodes in Slurm.\n"
        "Set it if nodes have the label `slurm-bridge/external-node=true`.",
    )
    shared_nodes: bool = Field(
        default=True,
        description="Nodes of slurm.conf that are also Kubernetes nodes are kept in step: a cordon drains the node in "
        "Slurm, and the condition `SlurmReady` shows its state in Slurm.\n"
        "Set it to false if the bridge must not change such nodes.",
    )
    lease: LeaseSettings | None = Field(
        default=None,
        description="Lets several replicas run: the holder of the Lease acts, the others stand by. Without it the "
        "bridge acts as the only one.\n"
        "Set it to run two replicas.",
    )
    bypass: Literal["warn", "end"] = Field(
        default="warn",
        description="What happens to pods of managed namespaces that run on a node of Slurm without a Slurm job. "
        "`warn`: the pod gets an event (`SlurmBypassed`), and a metric counts it. `end`: the pod is ended, too.\n"
        "Set it to `end` if users must not bypass Slurm.",
    )
    pending_reason: str = Field(
        default="",
        json_schema_extra={"pattern": f"^({REASON})?$"},
        description="Reason of the condition PodScheduled of pods that wait in Slurm. Empty: `SlurmJobPending`.\n"
        "Set it to `Unschedulable` if a cluster autoscaler shall add nodes for waiting pods.",
    )
    poll_interval_s: float = Field(
        default=1.1,
        strict=True,
        ge=0.1,
        le=60,
        description="Time between two polls of the job states of Slurm while no job waits. While jobs wait the bridge "
        "polls twice a second, and less often if a poll takes long.\n"
        "Raise it if slurmrestd is busy with lists of very many jobs. A job that ends is then noticed later.",
    )
    nodes_interval_s: float = Field(
        default=30.0,
        strict=True,
        ge=1,
        le=3600,
        description="Time between two polls of the nodes and partitions of Slurm.\n"
        "Lower it if a change of a node in Slurm must show in Kubernetes sooner.",
    )
    slurm_connections: int = Field(
        default=8,
        strict=True,
        ge=1,
        le=64,
        description="Number of connections to slurmrestd, besides the one that polls.\n"
        "Raise it if slurmrestd has more threads and bursts of pods are slow.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Least level of the log lines on standard error: `debug`, `info`, `warning` or `error`.\n"
        "Set it to `debug` to look for the cause of a problem.",
    )
    tuning: Tuning = Field(
        default=Tuning(), description="Times, rates and sizes of the decisions. The defaults fit most clusters."
    )

    @field_validator("pending_reason")
    @classmethod
    def _a_reason(cls, reason: str) -> str:
        if reason and not re.fullmatch(REASON, reason, re.ASCII):
            raise ValueError("must be letters only, the first one a capital, as in SlurmJobPending")
        return reason

    @field_validator("slurm_url")
    @classmethod
    def _a_url(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets without end, a port that is no number
            usable = False
        if usable and (parts.username is not None or parts.password is not None):
            raise ValueError("must not contain a user or password; use the token file")
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
                "use https, or set allow_plain_http: true"
            )
        return self

    def core_policy(self, slurm_user: str) -> CorePolicy:
        """As the core wants it.  slurm_user: by whom Slurm runs; "": not known"""
        return self.policy.policy(slurm_user, self.priority_classes)

    def config(self, *, accounting: bool, slurm_user: str = "") -> Config:
        """As the core wants it."""
        return Config(
            policy=self.core_policy(slurm_user),
            translation=Translation(dict(self.gres), self.default_memory_mib, self.ignored_resources),
            tuning=self.tuning,
            managed_namespaces=frozenset(self.managed_namespaces),
            scheduler_name=self.scheduler_name,
            pending_reason=self.pending_reason,
            device_driver=self.device_driver,
            external_nodes=self.external_nodes,
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

    options   by field name, None if not given; `config` names the file
    Raises ConfigError.
    """
    path = path_of(options, environment)
    written = {**(_read(path) if path else {}), **_given(options, environment)}
    try:
        return Settings.model_validate(written)
    except ValidationError as error:
        mistakes = _mistakes(error)
        raise ConfigError(f"{path or 'settings'}: {_sentences(mistakes, written)}", _advice(mistakes)) from None


def usable(options: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[Settings, frozenset[str]]:
    """The usable part of settings that `load` refuses, for further checks; and the keys that are uncertain.

    Each key with a mistake is left out.  A key is uncertain if it is spelt nearly as one with a mistake, or if it is required
    and not given.  If the file cannot be read, each key is uncertain that no option and no variable gives.
    """
    path, given = path_of(options, environment), _given(options, environment)
    try:
        written = {**(_read(path) if path else {}), **given}
    except ConfigError:  # `load` reports it
        chosen, _ = _without_mistakes(given)
        return chosen, frozenset(Settings.model_fields) - chosen.model_fields_set
    chosen, wrong = _without_mistakes(written)
    meant = {near for key in wrong for near in difflib.get_close_matches(key, Settings.model_fields, n=5)}
    return chosen, frozenset({*wrong, *meant, *NEEDED}) - chosen.model_fields_set


def _without_mistakes(written: Mapping[str, Any]) -> tuple[Settings, set[str]]:
    """The valid part of the settings, and the keys that were left out."""
    wrong: set[str] = set()
    for _ in range(len(written)):  # each time one key is left out at least
        left = {key: value for key, value in written.items() if str(key) not in wrong}
        try:
            return Settings.model_validate(left), wrong
        except ValidationError as error:
            # A mistake between keys is that of a URL over which no token may travel (I5).
            wrong |= {str(mistake["loc"][0]) if mistake["loc"] else "slurm_url" for mistake in error.errors()}
    return Settings(), wrong


def path_of(options: Mapping[str, str | None], environment: Mapping[str, str]) -> str | None:
    """The settings file that is named, or STANDARD_INPUT; None: there is none."""
    named = options.get("config") or environment.get(ENVIRONMENT + "CONFIG")
    return STANDARD_INPUT if named == "-" else named


def _given(options: Mapping[str, str | None], environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings from the command line and the environment, by field; they override the file."""
    given = {}
    for name in OPTIONS:
        value = options.get(name)
        if value is None:
            value = environment.get(ENVIRONMENT + name.upper())
        if value is not None:
            given[name] = value
    return given


@cache
def _standard_input() -> str:
    """Commands read their settings more than once, and standard input gives them once."""
    return sys.stdin.read(MOST_CHARACTERS + 1)


def _text(path: str) -> str:
    if path == STANDARD_INPUT:
        return _standard_input()
    with open(path, encoding="utf-8") as file:
        return file.read(MOST_CHARACTERS + 1)


def _read(path: str) -> dict[str, Any]:
    try:
        text = _text(path)
        if len(text) > MOST_CHARACTERS:
            raise ConfigError(f"{path}: is longer than {MOST_CHARACTERS:,} characters.", "Name a settings file.")
        content = yaml.load(text, UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except DuplicateKeyError as error:
        raise ConfigError(f"{path}: {error}", "Remove one of them.") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}.", "Name a settings file that exists and can be read."
        ) from None
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:
        # ValueError: the file is no text, or has an invalid date or number.
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        raise ConfigError(f"{path}: is not YAML{line}.", "Correct it, or point --config at a settings file.") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values.", "Write lines like key: value there.")
    return content


def _mistakes(error: ValidationError) -> list[ErrorDetails]:
    """All mistakes, except that a misspelled key is also missing."""
    found = error.errors()
    meant = {(*mistake["loc"][:-1], _near(mistake["loc"])) for mistake in found if mistake["type"] in UNKNOWN_KEY}
    return [mistake for mistake in found if mistake["type"] != MISSING or mistake["loc"] not in meant]


def _sentences(mistakes: Sequence[ErrorDetails], written: Mapping[str, Any]) -> str:
    """The first mistakes, a sentence each, and how many more there are."""
    more = len(mistakes) - MOST_SHOWN
    rest = [f"There {'is' if more == 1 else 'are'} {more:,} more."] if more > 0 else []
    return " ".join([*(_sentence(mistake, written) for mistake in mistakes[:MOST_SHOWN]), *rest])


def _sentence(mistake: ErrorDetails, written: Mapping[str, Any]) -> str:
    key, message = place(mistake, written), in_words(mistake)
    if mistake["type"] in UNKNOWN_KEY:
        near = _near(mistake["loc"])
        message = f"unknown key; did you mean {near}?" if near else "unknown key"
    sentence = line(f"{key + ': ' if key else ''}{message}", MOST_OF_SENTENCE)
    return sentence if sentence.endswith("?") else f"{sentence}."


def _advice(mistakes: Sequence[ErrorDetails]) -> str:
    """ "" where the sentences say what would be right."""
    unknown = [mistake for mistake in mistakes[:MOST_SHOWN] if mistake["type"] in UNKNOWN_KEY]
    if all(_near(mistake["loc"]) for mistake in unknown):
        return ""
    return "Remove unknown keys, or correct them: docs/settings.md lists all keys."


def _near(place: tuple[int | str, ...]) -> str:
    """The known key that is spelled most like the last part of the place; "": none is."""
    return next(iter(difflib.get_close_matches(str(place[-1]), _keys_at(place[:-1]), n=1)), "")


def _keys_at(place: tuple[int | str, ...]) -> list[str]:
    """The keys that may be written there."""
    whole = schema()
    here = whole
    for part in place:
        inside = here.get("items") if isinstance(part, int) else here.get("properties", {}).get(part)
        here = definition(inside or here["additionalProperties"], whole)
    return list(here["properties"])


# --- the settings as a JSON schema ------------------------------------------------------------------------------------


class _Plain(GenerateJsonSchema):
    """Without titles of keys, and without "or null": such a key is left out, and has no default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        written = super().default_schema(schema)
        return {key: value for key, value in written.items() if (key, value) != ("default", None)}


def schema() -> JsonSchemaValue:
    """All settings as a JSON schema.  The first line of a description is the meaning, the second one when to change it."""
    return Settings.model_json_schema(schema_generator=_Plain)


def definition(part: JsonSchemaValue, whole: JsonSchemaValue) -> JsonSchemaValue:
    """The part of that schema, or what it refers to."""
    found: JsonSchemaValue = whole["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    return found
