"""The observations of the doctor: each is either made, or has the reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bridge.kube.admin_reads import Greeting
from bridge.preflight.rights import Right
from bridge.settings import Settings
from bridge.slurm.admin_reads import Configuration, NodeDetails, PartitionDetails, Verdict
from bridge.slurm.client import Discovery
from scheduler import names
from scheduler.model.kubernetes import Namespace, Node, Pod, Undecoded
from scheduler.model.slurm import Partition

T = TypeVar("T")


class NotSeen(Exception):
    """An observation that a check needs could not be made.

    why      a sentence: what went wrong
    failed   the request failed; False: no request was sent, because an earlier one failed
    because  the short reason for "not checked: …"
    do       what to do about it
    """

    def __init__(self, why: str, *, because: str = "", failed: bool = True, do: str = "") -> None:
        super().__init__(why)
        self.why, self.because, self.failed, self.do = why, because or why, failed, do


@dataclass(frozen=True, slots=True)
class Observed(Generic[T]):
    """One observation.  took_s: seconds that it took; at: this host's clock in the middle of it, epoch seconds."""

    value: T | None = None
    missing: NotSeen | None = None
    took_s: float = 0.0
    at: float = 0.0

    def get(self) -> T:
        """The value.  Raises NotSeen."""
        if self.missing is not None:
            raise self.missing
        assert self.value is not None, "what was seen is something"
        return self.value


def nothing(because: str) -> Observed[T]:
    """An observation that was not attempted, with the reason."""
    return Observed(missing=NotSeen(because, failed=False))


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a Slurm token that can be read without its key.

    source     "token file /run/token", "token in SLURM_JWT"
    file       it is read from a file, and again when that changes
    user       the Slurm user that it names; "": none
    issued, expires   epoch seconds; None: it has no such claim
    readable_by_all   any user of this machine can read the file
    """

    source: str
    file: bool
    user: str = ""
    issued: float | None = None
    expires: float | None = None
    readable_by_all: bool = False


@dataclass(frozen=True, slots=True)
class OtherPods:
    """Pods that other schedulers bound to nodes: all of them, and the pods without a job whose owner is no DaemonSet."""

    pods: tuple[Pod, ...]

    @property
    def strangers(self) -> tuple[Pod, ...]:
        # Pods of another bridge have a job.
        return tuple(
            pod
            for pod in self.pods
            if (pod.owner is None or pod.owner.kind not in ("DaemonSet", "Node"))
            and names.JOB_ID not in pod.annotations
        )


Choice = tuple[str, str, str]  # Slurm user, what is chosen ("account", "partition", "qos"; "" nothing), its value


@dataclass(slots=True)
class Observations:
    """Everything that checks read.

    source         where the settings are from, in words; "": no settings are named
    usable         the settings; if they have a mistake, the part that can be used
    uncertain       keys of the settings that may have been meant where the mistake is
    status_without_token  the HTTP status of a request without a token to slurmrestd
    rights         each of rights.CLUSTER, look_kubernetes.REFERRED and rights.NODE to whether we have it everywhere
    rights_in      which rights of rights.NAMESPACE are missing, by managed namespace
    ours           pods of the bridge's scheduler
    undecoded      nodes, namespaces and pods that Kubernetes lists and that cannot be decoded; they are in no other list
    user_tokens    of each Slurm user that the policy names, where each has a token
    all_jobs       Slurm shows the jobs of all users to the bridge's token
    accounting     there is a slurmdbd, and it answers
    verdicts       Slurm's verdict on each choice that the policy names; filled: on those that its templates give
    bridge         the lines of /readyz at the bridge's own address; (): it is ready and all works
    unresolved     external nodes whose address is only a name that this host cannot resolve
    """

    now: float
    source: str = ""
    settings: Observed[Settings] = field(default_factory=Observed)
    usable: Settings = field(default_factory=Settings)
    uncertain: frozenset[str] = frozenset()
    server: Observed[str] = field(default_factory=Observed)
    greeting: Observed[Greeting] = field(default_factory=Observed)
    whoami: Observed[str] = field(default_factory=Observed)
    kube_token_expires: float | None = None
    rights: Observed[Mapping[Right, bool]] = field(default_factory=Observed)
    rights_in: Observed[Mapping[str, list[Right]]] = field(default_factory=Observed)
    namespaces: Observed[tuple[Namespace, ...]] = field(default_factory=Observed)
    nodes: Observed[tuple[Node, ...]] = field(default_factory=Observed)
    ours: Observed[tuple[Pod, ...]] = field(default_factory=Observed)
    other_pods: Observed[OtherPods] = field(default_factory=Observed)
    undecoded: list[Undecoded] = field(default_factory=list)
    token: Observed[Token] = field(default_factory=Observed)
    acting_token: Observed[Token] = field(default_factory=Observed)
    user_tokens: Observed[Mapping[str, Observed[Token]]] = field(default_factory=Observed)
    discovery: Observed[Discovery] = field(default_factory=Observed)
    status_without_token: Observed[int] = field(default_factory=lambda: nothing("it is asked with a token"))
    jobs: Observed[int] = field(default_factory=Observed)
    configuration: Observed[Configuration] = field(default_factory=Observed)
    all_jobs: Observed[bool] = field(default_factory=Observed)
    slurm_clock: Observed[float] = field(default_factory=Observed)
    slurm_nodes: Observed[tuple[NodeDetails, ...]] = field(default_factory=Observed)
    accounting: Observed[bool] = field(default_factory=Observed)
    partitions: Observed[tuple[Partition, ...]] = field(default_factory=Observed)
    partition_details: Observed[Mapping[str, PartitionDetails]] = field(default_factory=Observed)
    reservations: Observed[frozenset[str]] = field(default_factory=Observed)
    verdicts: Mapping[Choice, Observed[Verdict]] = field(default_factory=dict)
    filled: Mapping[Choice, Observed[Verdict]] = field(default_factory=dict)
    unresolved: Observed[frozenset[str]] = field(default_factory=Observed)
    bridge: Observed[tuple[str, ...]] = field(default_factory=Observed)

    def chosen(self, key: str) -> Settings:
        """The settings, to read that key.  Raises NotSeen if the key is uncertain."""
        return self.settings.get() if key in self.uncertain else self.usable


def managed_namespaces(seen: Observations) -> list[str]:
    """Namespaces whose pods may use the bridge."""
    listed = seen.chosen("managed_namespaces").managed_namespaces
    return sorted(
        namespace.name
        for namespace in seen.namespaces.get()
        if namespace.labels.get(names.MANAGED_LABEL) == "true" or namespace.name in listed
    )
