"""The mint as it ships: manifests/mint, applied as its kustomization says, as a second container of the bridge's own pod.

No long-lived token is there: the mint makes short-lived ones from a copy of Slurm's key, which it alone mounts, and the
bridge reads and acts with those.  test_installed says what replaces the registry, the URL and a scheduler of the bridge's own
pods.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.slurm.token import claims_of
from integration.clusters import PREFIX, Kube, Slurm, eventually, pod
from integration.journeys.test_installed import (
    INSTALLING,
    ON_THE_KUBELET,
    OWN,
    RIG,
    SPACE,
    all_namespaces,
    own_pod,
    readyz,
)
from integration.journeys.test_installed import terminal as terminal
from integration.readme import ROOT, Terminal

pytestmark = pytest.mark.usefixtures("no_bridge", "own_rig")
OVERLAY = ROOT / "manifests" / "mint" / "kustomization.yaml"
[APPLY] = re.findall(r"^#     (kubectl apply -k manifests/mint .*)$", OVERLAY.read_text(encoding="utf-8"), re.MULTILINE)
READER = "slurm-bridge"  # the user with whose token the bridge reads; this user has no rights in Slurm
TOKENS = "/run/slurm-bridge-tokens"
LIFETIME_S = 900
LIST = f"import os; print(*sorted(n for n in os.listdir('{TOKENS}') if n[0] != '.'))"


@pytest.fixture(scope="module")
def minted(terminal: Terminal, kube: Kube) -> Iterator[Path]:
    """An admin has made the three edits and the user, and typed the lines; the folder of the overlay."""
    eventually("what an earlier journey left is gone", lambda: not {OWN, SPACE} & all_namespaces(kube))
    folder, minimal = (terminal.folder / "manifests" / name for name in ("mint", "minimal"))
    (folder / "settings.yaml").write_text(with_url_of(minimal / "settings.yaml", folder / "settings.yaml"))
    shutil.copy(Path(os.environ["RIG_STATE"], "slurm", "etc", "jwt_hs256.key"), folder)
    (minimal / "token").write_text("none")  # by that overlay the terminal deletes what is installed
    on_slurmctlds_host("useradd", "--system", READER)
    first = next(number for number, line in enumerate(INSTALLING) if line == "kubectl apply -k manifests/minimal")
    for line in (APPLY, *INSTALLING[first + 1 :]):
        terminal.types(line)
    yield folder
    on_slurmctlds_host("userdel", READER)


def with_url_of(edited: Path, shipped: Path) -> str:
    """The settings as they ship, with the URL of those that were edited."""
    [url] = re.findall(r"^slurm_url: (.*\nallow_plain_http: true)", edited.read_text(), re.MULTILINE)
    return shipped.read_text().replace("https://slurmrestd.example", url)


def on_slurmctlds_host(*command: str) -> None:
    program, *arguments = command
    subprocess.run([RIG, "slurm", program, "--name", os.environ["RIG_NAME"], *arguments], check=True)


def inside(terminal: Terminal, container: str, python: str, codes: tuple[int, ...] = (0,)) -> str:
    """The output of a Python program in that container of the bridge's pod."""
    return terminal.types(
        f'kubectl --namespace={OWN} exec deployment/slurm-bridge --container={container} -- python3 -c "{python}"',
        codes,
    ).strip()


def token_of(terminal: Terminal, user: str) -> str:
    return inside(terminal, "slurm-bridge", f"print(open('{TOKENS}/{user}').read())")


def test_a_pod_runs_with_the_token_of_its_user_which_lives_for_minutes(
    minted: Path, terminal: Terminal, kube: Kube, slurm: Slurm
) -> None:
    assert not (minted / "jwt_hs256.key").exists(), "its copy is deleted by the line that applies it"
    kube.core.create_namespaced_pod(
        SPACE, pod("hello", on="", scheduler="", spec=ON_THE_KUBELET, command="exec sleep 600")
    )
    eventually("it runs", lambda: kube.pod(SPACE, "hello").status.phase == "Running")
    job = slurm.job(int(kube.pod(SPACE, "hello").metadata.annotations[PREFIX + "job-id"]))
    assert (job["user_name"], job["job_state"]) == ("alice", ["RUNNING"])
    for user in (READER, "alice"):
        claims = claims_of(token_of(terminal, user))
        assert claims.user == user
        assert claims.exp is not None
        assert time.time() < claims.exp <= time.time() + LIFETIME_S
    kube.core.delete_namespaced_pod("hello", SPACE)
    eventually("its job has ended with it", lambda: not slurm.live(f"{SPACE}/hello"))
    assert readyz(kube).startswith("ok\n")


def test_the_key_is_in_the_mint_alone_and_the_token_of_the_api_server_in_the_bridge_alone(
    minted: Path, terminal: Terminal
) -> None:
    there = "import os; print([os.path.exists(p) for p in ('/run/secrets/slurm', '/var/run/secrets/kubernetes.io')])"
    assert inside(terminal, "mint", there) == "[True, False]"
    assert inside(terminal, "slurm-bridge", there) == "[False, True]"
    read_only = f"import os; print(bool(os.statvfs('{TOKENS}').f_flag & os.ST_RDONLY))"
    assert (inside(terminal, "mint", read_only), inside(terminal, "slurm-bridge", read_only)) == ("False", "True")


def test_a_mint_that_ends_is_started_again_and_the_bridge_goes_on(minted: Path, terminal: Terminal, kube: Kube) -> None:
    bridge = own_pod(kube)
    terminal.types(
        f'kubectl --namespace={OWN} exec deployment/slurm-bridge --container=mint -- python3 -c "import os; os.kill(1, 15)"'
    )
    eventually("it is started again", lambda: restarts(kube, bridge) == {"mint": 1, "slurm-bridge": 0})
    eventually("and ready", lambda: readyz(kube).startswith("ok\n"))
    kube.core.create_namespaced_pod(SPACE, pod("after", on="", spec=ON_THE_KUBELET))
    eventually("it is bound", lambda: kube.pod(SPACE, "after").spec.node_name)
    kube.core.delete_namespaced_pod("after", SPACE)


def restarts(kube: Kube, name: str) -> dict[str, int]:
    status = kube.core.read_namespaced_pod(name, OWN).status
    return {each.name: each.restart_count for each in (*status.init_container_statuses, *status.container_statuses)}


def test_a_new_user_is_a_line_more_and_the_pod_goes_on(minted: Path, terminal: Terminal, kube: Kube) -> None:
    bridge, users = own_pod(kube), minted / "users"
    assert inside(terminal, "mint", LIST) == f"alice {READER}"
    users.write_text(users.read_text() + "bob\n")
    shutil.copy(Path(os.environ["RIG_STATE"], "slurm", "etc", "jwt_hs256.key"), minted)
    terminal.types(APPLY)
    eventually("kubelet shows the mint the file", lambda: inside(terminal, "mint", LIST) == f"alice bob {READER}")
    assert own_pod(kube) == bridge
    assert json.dumps(restarts(kube, bridge)) == json.dumps({"mint": 1, "slurm-bridge": 0})
