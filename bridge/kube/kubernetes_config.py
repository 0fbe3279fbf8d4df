"""The part of the `kubernetes` package that reads kubeconfigs and service accounts, loaded alone.

`import kubernetes` loads its clients, informers and streams, too: 300 modules, 11 MiB, and a tenth of a second of each start.
Python runs the `__init__` of a package before it loads a module of the package.  So these two packages are empty meanwhile.
Afterwards they are not loaded: a later `import kubernetes` loads all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec

__all__ = ["ConfigException", "Configuration", "incluster_config", "kube_config"]


@contextmanager
def _empty(*packages: str) -> Iterator[None]:
    """Each package that is not loaded is an empty one meanwhile."""
    absent = [name for name in packages if name not in sys.modules]
    for name in absent:
        spec = find_spec(name)
        assert spec is not None, f"{name} is a dependency"
        sys.modules[name] = module_from_spec(spec)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


with _empty("kubernetes", "kubernetes.aio"):
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, incluster_config, kube_config
