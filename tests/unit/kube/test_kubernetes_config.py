"""What a start loads of the `kubernetes` package."""

import subprocess
import sys

PROGRAM = """
import sys
import bridge.app

loaded = [name for name in sys.modules if name.startswith("kubernetes.")]
assert "kubernetes.aio.config.kube_config" in loaded, loaded
assert not {"kubernetes", "kubernetes.client", "kubernetes.aio", "kubernetes.aio.dynamic", "requests"} & sys.modules.keys()

import kubernetes.aio

assert kubernetes.client.CoreV1Api is not None
assert kubernetes.aio.config.kube_config is bridge.kube.kubernetes_config.kube_config
"""


def test_a_start_loads_the_readers_of_configurations_alone_and_the_whole_package_can_be_loaded_later() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
