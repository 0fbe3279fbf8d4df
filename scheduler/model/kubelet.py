"""The reasons of kubelet for a container that has not started, and whether waiting helps (S12).

`Pod.waits` is "container NAME: REASON[, message]".  The reasons are those of Kubernetes 1.36 (pkg/kubelet: images/types.go,
container/sync_result.go, kuberuntime/kuberuntime_container.go, kubelet_pods.go; k8s.io/cri-api pkg/errors).  A reason in
neither table is not taken as a problem.
"""

from __future__ import annotations

# Kubelet pulls an image, makes a volume or a sandbox, or starts another container first.  This may take long.
IN_PROGRESS = frozenset({"ContainerCreating", "PodInitializing", "Pulling"})

CRASHES = "CrashLoopBackOff"  # of a pod that has not started: an init container fails, and kubelet runs it again later

# Kubelet retries, and fails for the same reason until a person corrects the pod, a secret, the image or the node.
NEEDS_A_PERSON = frozenset(
    {
        CRASHES,
        "CreateContainerConfigError",  # a missing ConfigMap, Secret or key
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "PostStartHookError",
        "PreCreateHookError",
        "PreStartHookError",
        "RegistryUnavailable",
        "RunContainerError",
        "RunInitContainerError",
        "SignatureValidationFailed",
    }
)


def reason(waits: str) -> str:
    """The reason in `Pod.waits`; "" if nothing waits."""
    return waits.partition(": ")[2].partition(",")[0]


def is_in_progress(waits: str) -> bool:
    """True while kubelet is at work."""
    return reason(waits) in IN_PROGRESS


def needs_a_person(waits: str) -> bool:
    """True if the container does not start until a person corrects something."""
    return reason(waits) in NEEDS_A_PERSON
