"""Which pods form a gang, from their own labels and annotations (W1–W5, Kubernetes facts 4).

Labels and annotations of the pod name the group, so the group is known before any read.  Owners are read only for a size that
the pods do not show.  The same name in another namespace is another group.

A name may be used again: ended pods of last night's run may still exist when tonight's run begins.  So each pod has a run,
too, and ended pods count only together with other pods of their run (W5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from scheduler import names
from scheduler.model.kubernetes import OwnerRef, Pod
from scheduler.model.refusal import Refusal

MAX_TIMEOUT_S = 365 * 86400
MAX_SIZE = 10_000  # pods of one gang: a limit for one Slurm job, and for readers of its pods

GANG = names.PREFIX + names.GANG
GANG_SIZE = names.PREFIX + names.GANG_SIZE
GANG_TIMEOUT = names.PREFIX + names.GANG_TIMEOUT
OF_ITS_JOB = "job"  # this value of the label means the pods of one batch Job (K3)

# Labels and annotations of controllers that make groups.
POD_GROUP = "scheduling.x-k8s.io/pod-group"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-key"
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
LWS_RANK = "leaderworkerset.sigs.k8s.io/worker-index"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
JOBSET_RANK = "jobset.sigs.k8s.io/job-global-index"
JOBSET_PART = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_JOB = "jobset.sigs.k8s.io/job-index"
JOBSET_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_SIZE = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_RANK = "kueue.x-k8s.io/pod-group-pod-index"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
SET_INDEX = "apps.kubernetes.io/pod-index"
SIZES = (GANG_SIZE, LWS_SIZE, KUEUE_SIZE)  # annotations with the size of a group; people may correct them
# Annotations and labels that are read here, besides the bridge's own.
ANNOTATIONS = frozenset({LWS_SIZE, KUEUE_SIZE, COMPLETION_INDEX, names.MIRROR})
LABELS = frozenset(
    {
        POD_GROUP,
        LWS_GROUP,
        LWS_NAME,
        LWS_RANK,
        JOBSET,
        JOBSET_UID,
        JOBSET_RANK,
        JOBSET_PART,
        JOBSET_JOB,
        JOBSET_ATTEMPT,
        KUEUE_GROUP,
        KUEUE_RANK,
        COMPLETION_INDEX,
        SET_INDEX,
    }
)


@dataclass(frozen=True, slots=True)
class Group:
    """The group that one pod belongs to, as its labels and annotations show it.

    kind      the kind of controller or convention that makes the group, for people
    name      the name of the group, for people and for the job's name
    identity  identifies the group: the key of the workload is a hash of this text
    size      number of pods of the group as the pod shows it; None: it shows none
    size_source       if `size` is None: the object that defines the size, to be read
    size_source_kind  if there is no such object: the kind of the controller that defines the size; "": none does
    timeout_s  annotation gang-timeout, seconds (K3)
    run       the run of the group; "": the group has one run
    stage     the stage of the pod, if a JobSet creates its Jobs in stages; "": not known, or no stages
    """

    kind: str
    name: str
    identity: str
    size: int | None = None
    size_source: OwnerRef | None = None
    size_source_kind: str = ""
    timeout_s: int | None = None
    run: str = ""
    stage: str = ""


def group_of(pod: Pod) -> Group | Refusal | None:
    """The group of a pod; None: the pod is a workload by itself (W1); a Refusal if its labels cannot be read (T8)."""
    size_text = pod.annotations.get(GANG_SIZE)
    size = None if size_text is None else _whole(f"Annotation {GANG_SIZE}", size_text, MAX_SIZE)
    if isinstance(size, Refusal):
        return size
    timeout_text = pod.annotations.get(GANG_TIMEOUT)
    timeout_s = None if timeout_text is None else _whole(f"Annotation {GANG_TIMEOUT}", timeout_text, MAX_TIMEOUT_S)
    if isinstance(timeout_s, Refusal):
        return timeout_s
    foreign = _foreign(pod, size)
    found = _own(pod, size, has_foreign=foreign is not None) or foreign
    if isinstance(found, Group):
        return replace(found, timeout_s=timeout_s)
    if found is None and size_text is not None:
        return Refusal(
            names.REFUSED,
            f"Annotation {GANG_SIZE} names the size of a gang, but not the gang: add the label {GANG}.",
        )
    return found


def _own(pod: Pod, size: int | None, *, has_foreign: bool) -> Group | Refusal | None:
    """The group by the bridge's own label; for pods of a batch Job, the annotation with the size is enough (W3).

    has_foreign   the pod has a group by labels of other controllers
    """
    name = pod.labels.get(GANG)
    owner = pod.owner
    of_job = owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/")
    if name == OF_ITS_JOB or (name is None and size is not None and of_job and not has_foreign):
        if owner is None or not of_job:
            return Refusal(
                names.REFUSED,
                f"Label {GANG}: {OF_ITS_JOB} means the pods of one batch Job, but no Job controls this pod.",
            )
        return Group(
            "batch Job",
            owner.name,
            _identity("job", pod.namespace, owner.name, owner.uid),
            size,
            size_source_kind="Job",
        )
    if name is None:
        return None
    if not name:
        return Refusal(names.REFUSED, f"Label {GANG} is empty: give the name of the gang.")
    return Group("gang", name, _identity("gang", pod.namespace, name), size, run=_run(pod))


def _foreign(pod: Pod, size: int | None) -> Group | Refusal | None:
    """The group by labels of other controllers and tools; the bridge's own annotation overrides their size."""
    labels, notes = pod.labels, pod.annotations
    if key := labels.get(LWS_GROUP):
        found = size if size is not None else _size_shown(notes, LWS_SIZE)
        name = labels.get(LWS_NAME, key)
        identity = _identity("lws", pod.namespace, key)
        return found if isinstance(found, Refusal) else Group("LeaderWorkerSet", name, identity, found)
    if jobset := labels.get(JOBSET):
        identity = _identity("jobset", pod.namespace, jobset, labels.get(JOBSET_UID, ""))
        group = Group("JobSet", jobset, identity, size, size_source_kind="JobSet", run=labels.get(JOBSET_ATTEMPT, ""))
        return in_stage(group, notes.get(names.STAGE, "") if pod.node else "")
    if kueue := labels.get(KUEUE_GROUP):
        found = size if size is not None else _size_shown(notes, KUEUE_SIZE)
        identity = _identity("kueue", pod.namespace, kueue)
        return found if isinstance(found, Refusal) else Group("Kueue pod group", kueue, identity, found)
    if plugin := labels.get(POD_GROUP):
        size_source = _object("scheduling.x-k8s.io/v1alpha1", pod, plugin)
        return Group("PodGroup", plugin, _identity("podgroup", pod.namespace, plugin), size, size_source, run=_run(pod))
    if own := pod.pod_group:
        size_source = _object("scheduling.k8s.io/v1alpha2", pod, own)
        return Group("PodGroup", own, _identity("workload", pod.namespace, own), size, size_source, run=_run(pod))
    return None


def in_stage(group: Group, stage: str) -> Group:
    """The gang of one stage of a JobSet, which does not wait for later stages.  stage "": the whole JobSet"""
    if not stage:
        return group
    identity = _identity(group.identity, stage)
    return replace(group, name=f"{group.name}-{stage}", identity=identity, stage=stage)


def _run(pod: Pod) -> str:
    """The run of a pod: the UID of its controller, which replaces pods during a run; otherwise the job of the pod's bind.

    Waiting pods without a controller are one run.  Other groups need no run: the name of a LeaderWorkerSet or of a Kueue pod
    group means one run, and the key of a batch Job or of a JobSet contains its UID.
    """
    if pod.owner is not None:
        return pod.owner.uid
    return pod.annotations.get(names.JOB_ID, "") if pod.node else ""


def _identity(*parts: str) -> str:
    return "\0".join(parts)


def _object(api_version: str, pod: Pod, name: str) -> OwnerRef:
    """A reference without a UID, which pods do not show: the object is identified by its name."""
    return OwnerRef(api_version, "PodGroup", name, f"{api_version}/{pod.namespace}/{name}")


def size_when_bound(pod: Pod) -> int | None:
    """The number of pods of the gang that the bind wrote on the pod; None: another client edited it."""
    size = _whole("", pod.annotations.get(names.SIZE, ""), MAX_SIZE)
    return None if isinstance(size, Refusal) else size


def in_own_run(group: Group, pod: Pod) -> Group:
    """The group that another pod shows, with the run of this pod, which may be a later run of the group."""
    if not group.run:
        return group
    return replace(group, run=pod.labels.get(JOBSET_ATTEMPT, group.run) if group.kind == "JobSet" else _run(pod))


def _size_shown(notes: Mapping[str, str], key: str) -> int | Refusal | None:
    return _whole(f"Annotation {key}", notes[key], MAX_SIZE) if key in notes else None


def _whole(where: str, text: str, most: int) -> int | Refusal:
    if not re.fullmatch(r"[0-9]{1,8}", text, re.ASCII) or not 1 <= int(text) <= most:
        return Refusal(names.REFUSED, f"{where}: {text[:60]!a} is not a whole number from 1 to {most:,}.")
    return int(text)


# --- order ----------------------------------------------------------------------------------------------------------

_DIGITS = re.compile(r"([0-9]+)", re.ASCII)

# Each place always has the same type, so that any two names, and any two ranks, can be compared.
Natural = tuple[tuple[int, str], ...]
Rank = tuple[tuple[int, str, int, int, int, int, int], Natural, str]


def rank_of(pod: Pod) -> Rank:
    """The sort key of pods of a gang (W8): the index from their controller, then their names in natural order."""
    labels = pod.labels
    index = (
        _number(labels.get(JOBSET_RANK)),
        labels.get(JOBSET_PART, ""),
        _number(labels.get(JOBSET_JOB)),
        _number(labels.get(LWS_RANK)),
        _number(labels.get(KUEUE_RANK)),
        _number(labels.get(SET_INDEX)),
        _number(labels.get(COMPLETION_INDEX) or pod.annotations.get(COMPLETION_INDEX)),
    )
    return index, natural(pod.name), pod.uid


def by_rank(pods: Iterable[Pod]) -> list[Pod]:
    """These pods in the order of their ranks."""
    found = list(pods)
    return sorted(found, key=rank_of) if len(found) > 1 else found


def natural(name: str) -> Natural:
    """A sort key that puts "w-10" after "w-9": numbers are compared as numbers, and come after any text."""
    return tuple(_piece(part) for part in _DIGITS.split(name))


def _piece(part: str) -> tuple[int, str]:
    """One part of the key.  Without int(), because Python does not read numbers of more than 4300 digits."""
    if not _DIGITS.fullmatch(part):
        return (-1, part)
    digits = part.lstrip("0")
    return (len(digits), digits)


def _number(text: str | None) -> int:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else -1
