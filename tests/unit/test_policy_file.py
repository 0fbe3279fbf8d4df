"""The policy of the settings file is read again while the bridge runs; a file that cannot be used changes nothing (I8)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from bridge import policy_file
from bridge.policy_file import PolicyFile
from bridge.settings import Settings, load
from bridge.simulation.virtual_time import run
from scheduler.events import Event, PolicyChanged
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Partition
from scheduler.policy.rules import Priority
from tests.builders import Story

T = TypeVar("T")
NOON = 1_800_014_400.0
LABEL = "{namespace.labels['x/slurm-user']}"


class Admin:
    """Writes the file as kubelet mounts a ConfigMap, and looks what the bridge makes of it."""

    def __init__(self, folder: Path, slurm_user: str = "slurm") -> None:
        self.path, self._folder, self._version = folder / "settings.yaml", folder, 0
        self.mounts(user="alice")
        self.options: dict[str, str | None] = {"config": str(self.path)}
        self.now, self.world = NOON, Story().world
        self.file = PolicyFile(
            str(self.path), load(self.options, {}), lambda: load(self.options, {}), slurm_user, lambda: self.now
        )

    def mounts(self, text: str = "", *, user: str = "", more: dict[str, Any] | None = None, **rule: Any) -> None:
        """A new folder, and a link that is swapped."""
        rules = [{"namespaces": ["hpc"], "user": user, **rule}]
        self._version += 1
        data = self._folder / f"data{self._version}"
        data.mkdir()
        (data / "settings.yaml").write_text(text or yaml.safe_dump({"policy": {"rules": rules}, **(more or {})}))
        link = self._folder / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(data)
        os.replace(link, self._folder / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to(Path("..data") / "settings.yaml")

    def looks(self) -> PolicyChanged | None:
        self.now += 2
        return self.file.look(self.world)

    def user(self, event: PolicyChanged | None) -> str:
        assert event is not None
        found = event.policy.tenant("hpc", "default", {"x/slurm-user": "carol"})
        assert not isinstance(found, Refusal)
        return found.user


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(tmp_path)


def test_a_file_that_stays_changes_nothing(admin: Admin) -> None:
    assert [admin.looks() for _ in range(3)] == [None, None, None]
    assert admin.file.notes(admin.now) == []


def test_another_policy_is_in_force_once(admin: Admin) -> None:
    admin.mounts(user="bob", more={"priority_classes": {"low": {"nice": 5}}})
    event = admin.looks()
    assert admin.user(event) == "bob"
    assert event is not None
    assert event.policy.priorities == {"low": Priority(nice=5)}
    assert event.policy.privileged == {"slurm"}
    assert admin.looks() is None


def test_a_policy_that_was_written_while_the_bridge_started_is_not_missed(admin: Admin) -> None:
    admin.mounts(user="bob")
    assert admin.user(admin.looks()) == "bob"


def test_the_same_policy_written_again_is_no_change(admin: Admin) -> None:
    admin.mounts(user="alice")
    assert admin.looks() is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("policy: [", "is not YAML"),
        ("policy: {default: {user: 2026-02-30}}", "is not YAML"),
        ("policy: {rules: [{namespaces: [hpc], user: root}]}", "must be an ordinary Slurm user's name"),
        ("policy: {rules: [{namespaces: [hpc], user: SLURM}]}", "is the user that runs Slurm"),
        ("policy: {rules: [{namespaces: [hpc], user: bob, partition: {default: no-such}}]}", "no partition"),
        ("polices: {}", "unknown key; did you mean policy?"),
    ],
)
def test_a_file_that_cannot_be_used_keeps_the_policy_before_and_says_so(
    admin: Admin, text: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.looks()
    admin.mounts(text)
    assert [admin.looks() for _ in range(3)] == [None, None, None]
    [note] = admin.file.notes(admin.now)
    assert sentence in note
    assert note.endswith("The policy that was read at 12:00 UTC stays in force.")
    assert admin.file.rejected() == [(1.0, {})]
    assert len([each for each in caplog.records if sentence in each.getMessage()]) == 1, "said once"
    admin.mounts(user="bob")
    assert admin.user(admin.looks()) == "bob"
    assert admin.file.notes(admin.now) == []
    assert admin.file.rejected() == [(0.0, {})]


@pytest.fixture
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time does not wait for threads."""

    async def here(read: Callable[[], T]) -> T:
        return read()

    monkeypatch.setattr(asyncio, "to_thread", here)


@pytest.mark.usefixtures("without_threads")
def test_half_of_a_file_is_no_policy_while_an_editor_writes_it(admin: Admin) -> None:
    """Half of it would be in force: without the rule of the second namespace, or for a user with another name."""
    rules = "policy:\n  rules:\n  - {namespaces: [hpc], user: bob}\n  - namespaces: [lab]\n    user: carolina\n"
    events: list[Event] = []

    async def writes() -> None:
        async with asyncio.timeout(600):
            follows = asyncio.ensure_future(admin.file.follow(events.append, admin.world))
            await asyncio.sleep(3)
            admin.path.unlink()
            for end in range(len(rules)):
                admin.path.write_text(rules[:end])
                await asyncio.sleep(0.3)
            admin.path.write_text(rules)
            await asyncio.sleep(3)
            follows.cancel()

    run(writes())
    [event] = events
    assert isinstance(event, PolicyChanged)
    assert [event.policy.tenant(namespace, "default", {}).user for namespace in ("hpc", "lab")] == ["bob", "carolina"]


def test_a_file_that_was_written_before_the_bridge_began_to_lead_is_in_force_at_once(admin: Admin) -> None:
    admin.mounts(user="bob")
    os.utime(admin.path, (0, 0))
    events: list[Event] = []

    async def begins() -> None:
        follows = asyncio.ensure_future(admin.file.follow(events.append, admin.world))
        await asyncio.sleep(0)
        follows.cancel()

    run(begins())
    [event] = events
    assert isinstance(event, PolicyChanged)
    assert admin.user(event) == "bob"


@pytest.mark.parametrize("text", ["", "policy: nonsense"])
async def test_while_a_large_file_is_read_decisions_go_on(
    admin: Admin, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a thousand rules.  While it cannot be used, it is read every two seconds."""
    monkeypatch.setattr(policy_file, "EVERY_S", 0.01)
    reread, threads, is_read = admin.file.reread, list[threading.Thread](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def noted() -> Settings:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(is_read.set)
        return reread()

    admin.file.reread = noted
    os.utime(admin.path, (0, 0))
    follows = asyncio.ensure_future(admin.file.follow(lambda _event: None, admin.world))
    for _ in range(3 if text else 2):
        await asyncio.wait_for(is_read.wait(), 10)
        is_read.clear()
        if len(threads) == 1:
            admin.mounts(text, user="bob")
            os.utime(admin.path, (0, 0))
    follows.cancel()
    assert threads[0] is threading.main_thread(), "no decision comes before"
    assert threading.main_thread() not in threads[1:]


def test_a_partition_that_is_missing_is_looked_for_without_another_read_of_the_file(admin: Admin) -> None:
    admin.looks()
    admin.mounts(user="bob", partition={"default": "soon"})
    assert admin.looks() is None
    admin.file.reread = lambda: pytest.fail("it was read already")
    assert admin.looks() is None
    admin.world.partitions = {"soon": Partition("soon")}
    assert admin.user(admin.looks()) == "bob"


def test_a_file_that_is_written_while_it_is_read_is_read_again(admin: Admin) -> None:
    reread = admin.file.reread

    def is_overtaken() -> Settings:
        found, admin.file.reread = reread(), reread
        admin.mounts(user="carol")
        return found

    admin.looks()
    admin.mounts(user="bob")
    admin.file.reread = is_overtaken
    assert admin.looks() is None
    assert admin.user(admin.looks()) == "carol"


def test_a_file_that_is_gone_keeps_the_policy_before(admin: Admin) -> None:
    admin.looks()
    admin.path.unlink()
    assert admin.looks() is None
    assert "cannot be read" in admin.file.notes(admin.now)[0]


def test_a_partition_that_is_made_later_mends_the_file_by_itself(admin: Admin) -> None:
    admin.looks()
    admin.mounts(user="bob", partition={"default": "new"})
    assert admin.looks() is None
    admin.world.partitions = {**admin.world.partitions, "new": admin.world.partitions["main"]}
    assert admin.user(admin.looks()) == "bob"


def test_a_partition_that_is_removed_from_slurm_holds_up_no_other_edit_of_the_policy(admin: Admin) -> None:
    admin.world.partitions = {**admin.world.partitions, "old": admin.world.partitions["main"]}
    admin.mounts(user="bob", partition={"default": "old"})
    assert admin.user(admin.looks()) == "bob"
    del admin.world.partitions["old"]
    admin.mounts(user="dora", partition={"default": "old"})
    assert admin.user(admin.looks()) == "dora"
    assert admin.file.notes(admin.now) == []


def test_other_keys_are_reported_to_need_a_restart_and_the_policy_takes_effect_all_the_same(admin: Admin) -> None:
    admin.mounts(user="bob", more={"shared_nodes": False, "bypass": "end"})
    assert admin.user(admin.looks()) == "bob"
    assert admin.file.settings.shared_nodes
    assert admin.file.notes(admin.now) == [
        f"{admin.path}: changed since the start, and needs a restart: shared_nodes, bypass."
    ]
    admin.mounts(user="bob")
    assert admin.looks() is None
    assert admin.file.notes(admin.now) == []


def test_templates_wait_for_a_restart_if_slurm_user_was_never_known(tmp_path: Path) -> None:
    admin = Admin(tmp_path, slurm_user="")
    admin.mounts(user=LABEL)
    assert admin.looks() is None
    assert "Restart the bridge while slurmctld answers." in admin.file.notes(admin.now)[0]


def test_templates_come_into_force_as_well(admin: Admin) -> None:
    admin.mounts(user=LABEL)
    assert admin.user(admin.looks()) == "carol"
