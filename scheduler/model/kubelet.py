"""What kubelet says of a container that has not started, and whether waiting helps (S12).

`Pod.waits` is "container NAME: REASON[, message]".  The reasons are those of Kubernetes 1.36 (pkg/kubelet: images/types.go,
container/sync_result.go, kuberuntime/kuberuntime_container.go, kubelet_pods.go; k8s.io/cri-api pkg/errors).  A reason that is
in neither table is not known to mean trouble.
"""

from __future__ import annotations

# It pulls an image, makes a volume or a sandbox, or another container's turn comes first.  An image of 40 GB takes its time.
GOES_ON = frozenset({"ContainerCreating", "PodInitializing", "Pulling"})

# Kubelet tries again and again, and fails for the same reason until somebody mends the pod, a secret, the image or the node.
NEEDS_A_PERSON = frozenset(
    {
        "CrashLoopBackOff",  # of a pod that has not started: an init container
        "CreateContainerConfigError",  # a ConfigMap, a Secret or a key that is not there
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


def goes_on(waits: str) -> bool:
    """True while kubelet is at work."""
    return reason(waits) in GOES_ON


def needs_a_person(waits: str) -> bool:
    """True if the container does not start before somebody mends something."""
    return reason(waits) in NEEDS_A_PERSON
