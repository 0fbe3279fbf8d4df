"""The bridge is killed at every place of a story; every observation is lost, late or repeated, every answer is lost: the end
is the same (X3).

Each story is played once without a disturbance, then once for each place where a disturbance makes a difference.  Both
clusters must end in the same state as without the disturbance, and the invariants hold all the time.
"""

from __future__ import annotations

from functools import partial

import pytest

from bridge.loop import Loop
from scheduler import decide as passes
from scheduler.events import Event, PodsListed, Scope
from tests.simulation.disturbed import Story, kills, observations, play, swept, unanswered
from tests.simulation.stories import STORIES, a_pod_is_deleted_while_it_waits, one_pod_runs_and_ends

# --- the sweep ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_wherever_the_bridge_is_killed_the_story_ends_the_same(story: Story) -> None:
    wrong = swept(partial(play, story), lambda whole: kills(whole.seen))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whatever_is_observed_late_twice_or_not_at_all_the_story_ends_the_same(story: Story) -> None:
    wrong = swept(partial(play, story), observations)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whichever_answer_is_lost_and_its_request_late_the_story_ends_the_same(story: Story) -> None:
    wrong = swept(partial(play, story), lambda whole: unanswered(whole.seen))
    assert not wrong, "\n".join(wrong)


# --- the sweep can fail -------------------------------------------------------------------------------------------


def test_a_bridge_that_does_not_know_the_jobs_of_the_process_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passes.PERIODIC, "reads of unknown jobs", ())
    wrong = swept(partial(play, one_pod_runs_and_ends), lambda whole: kills(whole.seen))
    assert [each for each in wrong if each.startswith("killed-after")], wrong


def test_a_bridge_that_ignores_a_second_list_of_pods_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: set[int] = set()
    emit = Loop.emit

    def once(loop: Loop, event: Event) -> None:
        if isinstance(event, PodsListed) and event.scope is Scope.OURS:
            if id(loop) in listed:
                return
            listed.add(id(loop))
        emit(loop, event)

    monkeypatch.setattr(Loop, "emit", once)
    wrong = swept(partial(play, a_pod_is_deleted_while_it_waits), observations)
    assert [each for each in wrong if each.startswith("line-dropped")], wrong
