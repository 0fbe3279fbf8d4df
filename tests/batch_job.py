"""A batch Job, as an object of the simulated Kubernetes."""

from __future__ import annotations

from typing import Any

from bridge.simulation.kube.objects import Object


def batch_job(name_space: str, name: str, template: Object, **spec: Any) -> Object:
    """A batch Job; `completions`, `parallelism`, `backoffLimit`, `activeDeadlineSeconds` … by their API names."""
    return {"metadata": {"namespace": name_space, "name": name}, "spec": {**spec, "template": template}}
