"""What monitoring asks: does it turn, can it work and if not why, and the metrics (O2)."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.bridge_gauges import measure_clock
from bridge.cli.release import ask
from bridge.clock import SlewedClock
from bridge.errors import ConfigError
from bridge.guard import KINDS, Guard
from bridge.health import STANDSTILL_S, Health
from bridge.http_access import HEADER
from bridge.page import snapshot
from bridge.policy_file import policy_trouble
from bridge.settings import Settings
from bridge.slurm.token import LiteralToken
from bridge.starting import StandingBy, Starting
from bridge.telemetry import Telemetry
from scheduler.apply.events import new_world
from scheduler.decide import RULES
from scheduler.events import (
    AbsenceConfirmed,
    AccountingOutageBegan,
    ClockObserved,
    ObjectUndecoded,
    OutageBegan,
    Scope,
    Side,
)
from scheduler.model.kubernetes import Undecoded
from scheduler.state.phase import Phase
from scheduler.state.pod_records import BoundByOther
from scheduler.state.workload import Workload
from scheduler.state.world import World
from tests.builders import CONFIG, START, Story, pod
from tests.web_server import serving


class Tokens:
    def __init__(self, problem: str | None = None) -> None:
        self._problem = problem

    def check(self, now: float) -> None:
        if self._problem is not None:
            raise ConfigError(self._problem)

    def expires_at(self) -> float | None:
        return 1_900_000_000.0


class Turning:
    """What health reads of the loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.passed = START
        self.guard = Guard(on=True)


def health(world: World | None = None, *more: Any, at: float = START, problem: str | None = None) -> Health:
    loop: Any = Turning(world or Story().world)
    tokens: Any = Tokens(problem)
    return Health(loop, [tokens, *more], Telemetry(), lambda: at)


async def get(asked: Health, path: str, **headers: str) -> tuple[int, str, str]:
    runner = await asked.serve("127.0.0.1", 0)
    try:
        port = runner.addresses[0][1]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
        ):
            return answer.status, await answer.text(), answer.headers["Content-Type"]
    finally:
        await runner.cleanup()


async def test_calls_that_are_not_answered_are_a_reason_though_the_watches_go_on() -> None:
    loop: Any = Turning(Story().world)
    why = "Kubernetes: bind: no connection to https://10.0.0.1"
    asked = Health(loop, [], Telemetry(), lambda: START, calls_trouble=lambda: why)
    status, text, _ = await get(asked, "/readyz")
    assert (status, text.splitlines()[0]) == (503, why)
    loop.world.apply(OutageBegan(Side.KUBERNETES, START, "Kubernetes: list pods: no connection"))
    assert not [line for line in asked.not_ready() if line == why], "the watches say it"


async def test_another_bridge_is_noted_and_the_log_has_it_once(caplog: pytest.LogCaptureFixture) -> None:
    world = Story().world
    world.bound_by_others.append(BoundByOther(START, "hpc/train", "k", 30))
    world.unmapped.add(30)
    status, text, _ = await get(health(world), "/readyz")
    assert status == 200
    assert text.splitlines()[1].startswith(
        "Another slurm-bridge schedules pods of schedulerName slurm-bridge, by another"
    )
    telemetry = Telemetry(clock=lambda: START)
    for _ in range(2):
        telemetry.on_passed(world, 0.001, 0.0)
    assert [each.message for each in caplog.records] == [text.splitlines()[1]]
    world.bound_by_others.clear()
    telemetry.on_passed(world, 0.001, 0.0)
    assert caplog.records[-1].message == "no other slurm-bridge has been seen for a while"


async def test_a_loop_that_turns_is_healthy() -> None:
    assert (await get(health(), "/healthz"))[:2] == (200, "ok\n")
    assert health(at=START + STANDSTILL_S).why_stalled() == ""


async def test_a_loop_that_stands_still_is_not() -> None:
    asked = health(at=START + 40)
    assert (await get(asked, "/healthz"))[:2] == (500, "the loop has stood still for 40 s\n")


async def test_a_bridge_that_can_work_is_ready() -> None:
    assert (await get(health(), "/readyz"))[:2] == (200, "ok\n")


async def test_what_cannot_be_decoded_is_counted_beside_and_is_no_reason() -> None:
    story = Story()
    for kind, scope in (("pod", Scope.OURS), ("pod", Scope.OTHERS), ("node", None)):
        story.sees(ObjectUndecoded(Undecoded(kind, "", "odd", "u", "nonsense"), scope))
    assert (await get(health(story.world), "/readyz"))[:2] == (
        200,
        "ok\nKubernetes lists objects that slurm-bridge cannot read (the log has details): 1 node, 2 pods. "
        "Nothing is done to these.\n",
    )


async def test_the_token_that_acts_for_users_is_a_reason_of_its_own() -> None:
    """Polls are answered without it, and nothing else is done."""
    status, text, _ = await get(health(None, Tokens("slurm_acting_token_file: expired.")), "/readyz")
    assert (status, text) == (503, "slurm_acting_token_file: expired.\n")


async def test_every_reason_why_it_is_not_ready_is_a_line() -> None:
    world = new_world(CONFIG, START)
    world.apply(OutageBegan(Side.SLURM, START, "connection refused."))
    status, text, _ = await get(health(world, problem="token file t: expired."), "/readyz")
    assert status == 503
    assert text.splitlines() == [
        "Slurm: connection refused.",
        "waiting for the list of namespaces",
        "waiting for the list of Kubernetes nodes",
        "waiting for the list of this scheduler's pods",
        "waiting for the list of other pods",
        "waiting for Slurm's nodes",
        "waiting for Slurm's jobs",
        "token file t: expired.",
    ]


async def test_what_is_in_quarantine_is_counted_and_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(workload: Workload, view: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(RULES, Phase.UNSUBMITTED, rule)
    story = Story(guarded=True)
    story.sees(pod("very-private-name"))
    story.decides(START + 20)
    asked = health(story.world)
    status, text, _ = await get(asked, "/readyz")
    assert status == 200
    assert text == (
        "ok\nin quarantine after internal errors of slurm-bridge (the log has details): 1 workload. All others are handled.\n"
    )
    _, text, _ = await get(asked, "/metrics")
    assert value_of(text.splitlines(), "slurm_bridge_quarantined", 'kind="workload"') == 1
    assert value_of(text.splitlines(), "slurm_bridge_quarantined", 'kind="node"') == 0


async def test_the_first_error_of_the_bridge_itself_is_an_increase_of_a_series_that_was_there() -> None:
    """Prometheus sees no increase in a series that begins with 1, so an alert would miss the first error."""
    asked = health()
    lines = (await get(asked, "/metrics"))[1].splitlines()
    assert {value_of(lines, "slurm_bridge_own_errors_total", f'kind="{kind}"') for kind in KINDS} == {0}
    asked._loop.guard.caught(ZeroDivisionError(), "observer", "metrics")
    lines = (await get(asked, "/metrics"))[1].splitlines()
    assert value_of(lines, "slurm_bridge_own_errors_total", 'kind="observer"') == 1


async def test_a_replica_that_is_a_standby_again_shows_no_ages_and_counts_of_the_time_when_it_led() -> None:
    """The age of its last poll would grow, and an alert would say that Slurm is not polled."""
    story = Story()
    story.polls({}, at=START)
    asked = health(story.world, at=START + 100)
    assert value_of((await get(asked, "/metrics"))[1].splitlines(), "slurm_bridge_poll_age_seconds") == 100
    asked.stand_by()
    text = (await get(asked, "/metrics"))[1]
    assert not re.findall(r"^slurm_bridge_(?:poll_age|workloads|jobs|nodes).*", text, re.MULTILINE)
    loop: Any = Turning(story.world)
    asked.follow(loop)
    assert value_of((await get(asked, "/metrics"))[1].splitlines(), "slurm_bridge_poll_age_seconds") == 100


async def test_an_explanation_that_raises_is_an_answer_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("bridge.health.explain", explain)
    story = Story()
    story.sees(pod("train"))
    status, text, _ = await get(health(story.world), "/explain?namespace=hpc&pod=train")
    assert status == 500
    assert text == "slurm-bridge had an internal error; the admin finds it in the log of slurm-bridge.\n"


async def test_a_scrape_whose_counts_fail_shows_the_counts_before_and_that_there_was_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    story.runs(pod("train"), 17, at=START + 20)
    asked = health(story.world)
    await get(asked, "/metrics")

    def count(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("bridge.world_gauges._counting", count)
    lines = (await get(asked, "/metrics"))[1].splitlines()
    assert value_of(lines, "slurm_bridge_pods", 'state="running"') == 1
    assert value_of(lines, "slurm_bridge_own_errors_total", 'kind="observer"') == 1


async def test_the_scrape_has_phases_ages_and_sides_and_no_pods() -> None:
    story = Story()
    story.runs(pod("very-private-name"), 17, at=START + 20)
    story.sees(OutageBegan(Side.KUBERNETES, START, "away."))
    story.world.first_listed_at[7] = START
    story.world.postpone_read(7, START + 300)
    asked = health(story.world, at=START + 7)
    assert (await get(asked, "/metrics"))[2].startswith("text/plain; version=0.0.4"), "it was not asked for another"
    status, text, content_type = await get(asked, "/metrics", Accept="application/openmetrics-text")
    assert status == 200
    assert content_type.startswith("application/openmetrics-text")
    lines = text.splitlines()
    for line in (
        "# TYPE slurm_bridge_workloads gauge",
        "# TYPE slurm_bridge_poll_age_seconds gauge",
        "# TYPE slurm_bridge_token_expiry_timestamp_seconds gauge",
    ):
        assert line in lines
    assert value_of(lines, "slurm_bridge_workloads", 'phase="bound"') == 1
    assert value_of(lines, "slurm_bridge_workloads", 'phase="queued"') == 0
    assert value_of(lines, "slurm_bridge_poll_age_seconds") == 7
    assert value_of(lines, "slurm_bridge_unreadable_jobs") == 1
    assert value_of(lines, "slurm_bridge_side_lost", 'side="Kubernetes"') == 1
    assert value_of(lines, "slurm_bridge_side_lost", 'side="Slurm"') == 0
    assert value_of(lines, "slurm_bridge_token_expiry_timestamp_seconds") == 1_900_000_000
    assert "very-private-name" not in text
    assert lines[-1] == "# EOF"


def value_of(lines: list[str], metric: str, label: str = "") -> float:
    [line] = [each for each in lines if each.startswith((metric + "{", metric + " ")) and label in each]
    return float(line.rsplit(" ", 1)[1])


async def test_the_scrape_shows_how_far_clocks_are_apart() -> None:
    world = Story().world
    world.apply(ClockObserved(Side.KUBERNETES, START + 3600, START, START + 0.5))
    _, text, _ = await get(health(world), "/metrics")
    lines = text.splitlines()
    assert value_of(lines, "slurm_bridge_clock_ahead_seconds", 'side="Kubernetes"') == 3599.5
    assert not [line for line in lines if line.startswith("slurm_bridge_clock_ahead") and "Slurm" in line], (
        "it told none"
    )


async def test_the_scrape_shows_how_far_the_machines_clock_is_yet_to_be_followed() -> None:
    times = iter([1000.0, *[1060.0] * 9])
    telemetry = Telemetry()
    measure_clock(SlewedClock(lambda: next(times), lambda: 5.0), telemetry)
    loop: Any = Turning(Story().world)
    _, text, _ = await get(Health(loop, [], telemetry, lambda: START), "/metrics")
    assert value_of(text.splitlines(), "slurm_bridge_clock_behind_seconds") == 60


def missing(count: int) -> Story:
    """So many running jobs that Slurm lists no more."""
    story = Story()
    for number in range(count):
        story.runs(pod(f"p{number}"), 100 + number, at=START + 20)
    story.polls({100 + number: "RUNNING" for number in range(count)}, at=START + 21)
    story.polls({}, at=START + 25)
    return story


async def test_a_mass_absence_is_a_reason_and_a_count() -> None:
    world = missing(11).world
    assert (await get(health(world, at=START + 30), "/readyz"))[:2] == (
        503,
        "since 00:17 UTC: Slurm no longer lists 11 of 11 jobs: no pod is ended for it. "
        "If they are gone: slurm-bridge release\n",
    )
    _, text, _ = await get(health(world), "/metrics")
    assert value_of(text.splitlines(), "slurm_bridge_observations_rejected_total", 'reason="mass absence"') == 1


async def test_missing_jobs_are_counted_until_an_admin_says_that_they_are_gone() -> None:
    """A counter shows the moment alone: the alert ended ten minutes later, and pods still waited for a decision."""
    story = missing(11)
    for at in range(26, 1226, 60):
        story.polls({}, at=START + at)
    asked = health(story.world, at=START + 1226)
    assert value_of((await get(asked, "/metrics"))[1].splitlines(), "slurm_bridge_jobs_held_back") == 11
    story.sees(AbsenceConfirmed(START + 1227))
    assert value_of((await get(asked, "/metrics"))[1].splitlines(), "slurm_bridge_jobs_held_back") == 0


async def test_after_a_restart_missing_jobs_are_counted_and_noted_though_nothing_proves_whose_they_are() -> None:
    """The count of rejected observations was 1 at the first scrape, so Prometheus saw no increase."""
    shown = Story()
    pods = [shown.bound(pod(f"p{number}"), 100 + number) for number in range(11)]
    story = Story(started=START + 1000, pods=pods)
    for at in range(1001, 1100, 3):
        story.polls({}, at=START + at)
        story.plan(START + at)
    asked = health(story.world, at=START + 1100)
    assert value_of((await get(asked, "/metrics"))[1].splitlines(), "slurm_bridge_jobs_held_back") == 11
    status, text, _ = await get(asked, "/readyz")
    assert (status, text.splitlines()[0]) == (200, "ok")
    assert "Slurm does not list 11 jobs that pods from before the start of the bridge show" in text


async def test_what_made_no_sense_is_counted_by_reason() -> None:
    loop: Any = Turning(Story().world)
    tokens: Any = Tokens()
    telemetry = Telemetry()
    telemetry.on_call(Side.SLURM)("states", 0.1, "contracterror")
    telemetry.on_call(Side.SLURM)("states", 0.1, "ok")
    telemetry.on_unsolicited()
    _, text, _ = await get(Health(loop, [tokens], telemetry, lambda: START), "/metrics")
    lines = text.splitlines()
    assert value_of(lines, "slurm_bridge_observations_rejected_total", 'reason="nonsense from slurm"') == 1
    assert value_of(lines, "slurm_bridge_observations_rejected_total", 'reason="doubled answer"') == 1
    assert value_of(lines, "slurm_bridge_observations_rejected_total", 'reason="old poll"') == 0


async def test_the_admins_word_is_taken_from_the_bridges_own_machine_alone() -> None:
    loop: Any = Turning(missing(11).world)
    loop.emit = loop.world.apply
    tokens: Any = Tokens()
    asked = Health(loop, [tokens], Telemetry(), lambda: START + 30)
    runner = await asked.serve("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session, session.post(f"{url}/release") as answer:
            assert answer.status == 403, "a page in a browser there cannot say so"
        assert loop.world.held_back_since is not None
        assert await ask(url) == (
            "11 jobs count as gone. If Slurm does not grant the nodes of their pods to them again, their pods are ended, "
            "20 a second."
        )
        assert loop.world.held_back_since is None
        assert await ask(url) == "Nothing is held back."
    finally:
        await runner.cleanup()
    with pytest.raises(ConfigError, match="no bridge answers at"):
        await ask(url)


@pytest.mark.parametrize("status", [200, 404])
async def test_a_confirmation_that_another_program_took_is_not_said_to_be_taken(status: int) -> None:
    """Any HTTP 200 was success, and of a 404 the user saw only the number."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text="welcome")

    async with serving(answer, "/release") as url:
        with pytest.raises(ConfigError) as said:
            await ask(url)
    assert str(said.value) == (
        f"the server at {url} is not a slurm-bridge of this version: it answers with HTTP {status}. Run this command on "
        "the bridge's machine, or name its address: --bridge URL."
    )


async def test_each_answer_shows_that_a_bridge_gave_it() -> None:
    runner = await health(Story().world).serve("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session:
            for path in ("readyz", "explain", "nodes", "release", "nothing"):
                async with session.get(f"{url}/{path}") as answer:
                    assert HEADER in answer.headers, path
    finally:
        await runner.cleanup()


async def test_before_the_first_poll_there_is_no_age() -> None:
    _, text, _ = await get(health(new_world(CONFIG, START)), "/metrics")
    assert "slurm_bridge_poll_age_seconds" not in "".join(
        line for line in text.splitlines() if not line.startswith("#")
    )


async def test_a_token_without_an_end_has_no_expiry() -> None:
    loop: Any = Turning(Story().world)
    secret = "e30.eyJzdW4iOiJzbHVybSJ9.c2lnbmF0dXJl"  # {"sun":"slurm"}, and no exp
    _, text, _ = await get(Health(loop, [LiteralToken(secret)], Telemetry(), lambda: START), "/metrics")
    assert not [line for line in text.splitlines() if line.startswith("slurm_bridge_token_expiry")]
    assert secret not in text


async def test_an_address_in_use_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            await health().serve("127.0.0.1", port)
    message = str(caught.value)
    assert message.startswith(f"http 127.0.0.1:{port}: ")
    assert "in use" in message
    assert message.endswith("Choose another address with --http HOST:PORT.")
    assert "\n" not in message


async def test_a_slurmdbd_that_is_away_is_reported_and_stops_nothing_else() -> None:
    story = Story()
    story.sees(
        AccountingOutageBegan(START, "Slurm: partitions: slurmdbd does not answer (Connection refused) (error 7000).")
    )
    status, said, _ = await get(health(story.world), "/readyz")
    assert status == 200
    assert said == (
        "ok\nSlurm accounting, since 00:16 UTC: Slurm: partitions: slurmdbd does not answer (Connection refused) (error "
        "7000). 0 ended jobs wait to be recorded, and Slurm's partitions are those of the last answer; everything else "
        "goes on.\n"
    )
    _, metrics, _ = await get(health(story.world), "/metrics")
    assert re.search(r"^slurm_bridge_accounting_lost\{.*\} 1.0$", metrics, re.MULTILINE)
    assert re.search(r"^slurm_bridge_records_dropped_total\{.*\} 0.0$", metrics, re.MULTILINE)


async def test_what_the_start_could_not_check_of_the_policy_is_reported_when_it_is_known() -> None:
    settings = Settings.model_validate(
        {"policy": {"rules": [{"namespaces": ["hpc"], "user": "alice", "partition": {"allowed": ["gpu", "fast"]}}]}}
    )
    assert policy_trouble(settings, new_world(CONFIG, started=START)) == []
    assert policy_trouble(settings, Story().world) == ['policy: Slurm has no partition "fast". It has: gpu, main.']


class Follower:
    """What /readyz reads of a standby: its lease, and the events of its watches."""

    def __init__(self, holder: str = "slurm-bridge-0", trouble: str = "", *lacking: str) -> None:
        self.holder = holder
        self.trouble = trouble
        self.outage: OutageBegan | None = None
        self._lacking = list(lacking)

    def missing(self) -> list[str]:
        return self._lacking


def standby(follower: Any, problem: str | None = None) -> Starting:
    tokens: Any = Tokens(problem)
    made = Starting({}, [tokens], Telemetry(), lambda: START)
    made.standby = StandingBy(follower, follower)
    return made


async def test_a_standby_is_ready_and_says_which_replica_leads() -> None:
    asked: Any = standby(Follower())
    assert (await get(asked, "/readyz"))[:2] == (200, "ok\nstandby, slurm-bridge-0 leads\n")
    assert (await get(asked, "/healthz"))[0] == 200


async def test_a_standby_that_could_not_take_over_says_why() -> None:
    follower = Follower("", "The lease cannot be used.", "the list of other pods")
    follower.outage = OutageBegan(Side.KUBERNETES, START, "connection refused")
    status, text, _ = await get(standby(follower, "the token has ended."), "/readyz")
    assert status == 503
    assert text.splitlines() == [
        "Kubernetes: connection refused",
        "The lease cannot be used.",
        "waiting for the list of other pods",
        "the token has ended.",
        "standby, nobody leads",
    ]


async def test_a_standby_names_the_replica_that_can_explain() -> None:
    asked: Any = standby(Follower())
    status, text, _ = await get(asked, "/explain?pod=a")
    said = "This replica of slurm-bridge is standby, replica slurm-bridge-0 leads: ask slurm-bridge-0.\n"
    assert (status, text) == (503, said)
    status, text, _ = await get(standby(Follower("")), "/explain?pod=a")
    assert (status, text) == (
        503,
        "This replica of slurm-bridge is standby, and none leads now: ask again in some seconds.\n",
    )


async def shown(asked: Any) -> dict[str, Any]:
    """The first message of the page's stream."""
    runner = await asked.serve("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
        async with aiohttp.ClientSession() as session, session.get(url) as stream:
            told: dict[str, Any] = json.loads(await stream.content.readline())["changed"]
            return told
    finally:
        await runner.cleanup()


async def test_the_page_shows_the_world_of_the_bridge() -> None:
    story = Story()
    story.runs(pod("train"), 17, at=START + 20)
    loop: Any = Turning(story.world)
    told = await shown(Health(loop, [], Telemetry(), lambda: START + 30))
    assert told["pods"]["uid-train"]["job"] == 17
    assert "faults" not in told


async def test_the_page_of_a_standby_says_which_replica_leads() -> None:
    told = await shown(standby(Follower()))
    said = "This replica of slurm-bridge is standby, replica slurm-bridge-0 leads: ask slurm-bridge-0."
    assert told == {"about": {"note": said}}


async def test_the_page_of_a_bridge_that_starts_says_what_it_waits_for() -> None:
    waits = Starting({"Slurm": "Slurm: connection refused"}, [], Telemetry(), lambda: START)
    told = await shown(waits)
    assert told == {"about": {"note": "slurm-bridge has not started: Slurm: connection refused"}}


async def test_a_defect_in_one_row_is_counted_and_spoils_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.sees(pod("good"), pod("bad"))
    row = snapshot._row

    def broken(world: Any, workload: Any, what: Any) -> Any:
        return 1 / 0 if what.name == "bad" else row(world, workload, what)

    monkeypatch.setattr(snapshot, "_row", broken)
    loop: Any = Turning(story.world)
    loop.guard = Guard(on=True)
    told = await shown(Health(loop, [], Telemetry(), lambda: START + 30))
    assert set(told["pods"]) == {"uid-good"}
    assert loop.guard.contained["page"] >= 1
