"""Every reason of a condition or an event that the bridge writes: what it means, and what to do.

docs/annotations.md lists them, docs/messages.md has their messages.  A test compares this table with scheduler/names.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler import names

POD_SCHEDULED = "PodScheduled"
DISRUPTION = "DisruptionTarget"
EVENT = "event"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    name     as it is written
    where    types of the conditions that have it; EVENT: it is the reason of an event
    meaning  what is so
    to_do    what a user or an admin does
    """

    name: str
    where: tuple[str, ...]
    meaning: str
    to_do: str


WAITING = (POD_SCHEDULED, EVENT)
RUNNING = (names.RUNNING_CONDITION, EVENT)
NODE = (names.IN_SLURM, EVENT)
NOTHING = "Nothing."

OF_PODS = (
    Reason(
        names.GATHERING,
        WAITING,
        "The pod is part of a gang, and not all pods of the gang are here, or pods of its former job still run.",
        "If a controller makes the pods, wait: after `gang-timeout` the message says what may hold the others back. Else "
        "create the other pods, or correct the size of the gang.",
    ),
    Reason(
        names.SUBMITTED,
        (EVENT,),
        "The job of the pod is in the queue of Slurm. This is the first event about this job; later ones have the "
        "reason "
        f"`{names.PENDING}`.",
        NOTHING,
    ),
    Reason(
        names.PENDING,
        WAITING,
        "The job of the pod waits in Slurm. The message has Slurm's reason, the partition and the expected start. The "
        "setting "
        "`pending_reason` can give the condition another reason.",
        "Wait, or change what the pod asks for. `slurm-bridge explain POD` shows more.",
    ),
    Reason(
        names.REFUSED,
        WAITING,
        "The pod cannot be submitted as it is: an annotation, the policy, a limit or Slurm itself refuses it. Also a "
        "bind or "
        "another write that was refused.",
        "Do what the message says. The bridge tries again when the pod, its owners, the policy or Slurm's "
        "configuration "
        "changes, and every `tuning.refused_retry_s`.",
    ),
    Reason(
        names.NO_NODE,
        WAITING,
        "No node can run the pod, even if it were empty. The message counts the nodes by what they lack.",
        "Change the pod's selectors, tolerations or amounts, or add such nodes to both clusters.",
    ),
    Reason(
        names.NOT_MANAGED,
        WAITING,
        "The namespace of the pod may not use the bridge.",
        "An admin labels the namespace `slurm-bridge/managed=true`.",
    ),
    Reason(
        names.LIMITED,
        WAITING,
        "`max_jobs` or `max_submit_rate` of the policy's rule allows no further job now.",
        "Wait until other jobs under the rule have ended.",
    ),
    Reason(
        names.UNAVAILABLE,
        WAITING,
        "Slurm does not answer, or its answers cannot be used. Running pods are not touched.",
        "Wait. An admin finds the cause in /readyz.",
    ),
    Reason(
        names.LACKS_RIGHTS,
        WAITING,
        "The bridge lacks a right that it needs in the namespace of the pod. No job is asked for.",
        "Wait. An admin gives the right with the command in the message.",
    ),
    Reason(
        names.GRANT_WAITS,
        WAITING,
        "Slurm granted nodes, and the bind waits for something: a terminating pod, volumes, other members of the "
        "gang, a node "
        "that is not ready.",
        "Wait, or remove what the message names.",
    ),
    Reason(
        names.GRANT_RELEASED,
        WAITING,
        "The granted nodes could not be used. The job was ended, and the bridge asks for nodes again.",
        "If it repeats: compare the size of the node in both clusters (`slurm-bridge doctor`), and look for pods of "
        "other "
        "schedulers there.",
    ),
    Reason(
        names.UNREADABLE,
        (POD_SCHEDULED, EVENT),
        "The bridge cannot read the pod, the node, or an object that the pod depends on (its controller, its volume "
        "claims). "
        "Nothing is done to it until it can be read.",
        "Correct or recreate the object; check the rights of the bridge's account (`slurm-bridge doctor`).",
    ),
    Reason(
        names.QUARANTINED,
        WAITING,
        "slurm-bridge had an internal error about this object. Nothing is done to it; all others go on. It is "
        "tried again when it changes and every three minutes.",
        "Report the error: the log of the bridge has one traceback for each place in the code.",
    ),
    Reason(
        names.LEAVING,
        WAITING,
        "slurm-bridge is being uninstalled and asks Slurm for nothing more.",
        "Delete the pod, or recreate it with another `schedulerName`.",
    ),
    Reason(
        names.SCHEDULED,
        (EVENT,),
        "The pod is bound to the node that Slurm granted. A pod that never showed a wait has no such event.",
        NOTHING,
    ),
    Reason(
        names.ENDED,
        (DISRUPTION, EVENT),
        "The job of the pod is over in Slurm, or is about to end, and the pod is ended for it. The message has the "
        "state of "
        "the job.",
        "[ends.md](ends.md) says what each end means. A batch Job may ignore such ends by its `podFailurePolicy`.",
    ),
    Reason(
        names.ABSENCE,
        (EVENT,),
        "Slurm does not know the job of the running pod any more. The pod runs on, while the bridge asks for its nodes "
        "again or waits for proof.",
        "An admin compares `squeue` and [troubleshooting.md](troubleshooting.md#many-jobs-are-missing).",
    ),
    Reason(
        names.REACQUIRED,
        (EVENT,),
        "Slurm lost the job of the running pod, and another job holds its place now.",
        "Nothing. The annotation `job-id` has the new id.",
    ),
    Reason(
        names.BYPASS,
        (EVENT,),
        "The pod runs on a node of Slurm without a Slurm job: another scheduler bound it, or it names its node (`nodeName`).",
        "Give it the `schedulerName` of the bridge and no `nodeName`. The setting `bypass: end` ends such pods.",
    ),
    Reason(
        names.CHANGE_IGNORED,
        (EVENT,),
        "An annotation or a size was changed after the pod was bound. The job stays as it is.",
        "Recreate the pod to ask for something else.",
    ),
    Reason(
        names.PUT_BACK,
        (EVENT,),
        "Another client changed annotations of a bound pod that only the bridge writes. They were written back.",
        "Keep that client from writing them (`manifests/admission`).",
    ),
    Reason(
        names.REJECTED,
        (EVENT,),
        "The bridge rejected an implausible observation about the pod's job, and does not act on it.",
        "Compare the message with `scontrol show job`. See [metrics.md](metrics.md#rejected-observations).",
    ),
    Reason(
        names.RUNS,
        RUNNING,
        "The job of the pod runs. Written only after the condition said something else, or when the time limit "
        "changed.",
        NOTHING,
    ),
    Reason(
        names.SUSPENDED,
        RUNNING,
        "An admin suspended the job in Slurm. The pod runs on.",
        "An admin resumes the job: `scontrol resume JOB`.",
    ),
    Reason(
        names.ENDS_SOON,
        RUNNING,
        "The job reaches its time limit soon. The message has the time, and when the pod gets SIGTERM.",
        "Let the program save its state, or ask an admin for more time before kubelet has the deadline.",
    ),
    Reason(
        names.NOT_STARTING,
        RUNNING,
        "The pod is bound and does not start. The message has kubelet's reason.",
        "Mend what kubelet names (the image, a Secret, a volume). The pod is ended after `tuning.start_timeout_s`.",
    ),
    Reason(
        names.CRASHING,
        RUNNING,
        "A container of the pod is started again and again. The job keeps its nodes.",
        "Look at the logs of the container; delete the pod to free its nodes.",
    ),
)

OF_NODES = (
    Reason(names.NODE_IN_SERVICE, NODE, "Status True: Slurm gives jobs to the node.", NOTHING),
    Reason(
        names.NODE_WAITS,
        NODE,
        "The node is labelled for registration and is not registered yet.",
        "Wait. The message says what it waits for (`tuning.node_settle_s` after it became ready).",
    ),
    Reason(
        names.NODE_DRAINED,
        NODE,
        "The node is drained in Slurm: no new jobs. The message has the reason of the drain.",
        "An admin who drained it resumes it. The bridge resumes its own drains when their cause is over.",
    ),
    Reason(
        names.NODE_DOWN,
        NODE,
        "The node is down in Slurm.",
        "Look at the node; then `scontrol update nodename=NODE state=resume`.",
    ),
    Reason(
        names.NODE_SILENT,
        NODE,
        "Slurm says that the node does not respond, and gives it no jobs.",
        "The message says what brings the node back.",
    ),
    Reason(
        names.NODE_REFUSED,
        NODE,
        "Slurm refused to register or change the node. The message has Slurm's text and number.",
        "Often a device that `GresTypes` of slurm.conf does not name. It is tried again every minute.",
    ),
    Reason(
        names.NODE_INVALID,
        NODE,
        "The node cannot be registered: a label, an annotation, its address or its size is unusable.",
        "Correct what the message names.",
    ),
    Reason(
        names.NODE_NOT_OURS,
        NODE,
        "Slurm has a node of this name that the bridge did not register.",
        f"Remove the label `{names.EXTERNAL_NODE_LABEL}`, or give the node another name by `{names.SLURM_NODE_LABEL}`.",
    ),
    Reason(
        names.NODE_CONTESTED,
        NODE,
        "Several Kubernetes nodes claim the same node of Slurm. None of them gets pods.",
        f"Correct the label `{names.SLURM_NODE_LABEL}` of all but one.",
    ),
    Reason(
        names.NODE_OUTSIDE,
        NODE,
        "The node is in service, but not in a partition that its annotation names.",
        "Correct the NodeSet of the partition in slurm.conf, or register the node again.",
    ),
)

ALL = (*OF_PODS, *OF_NODES)
