"""What a benchmark's figures say of what was measured."""

from __future__ import annotations

from pathlib import Path

import msgspec

from integration.bench.figures import Figure, at_least_times, at_most, at_most_times, merged, never_more_than
from integration.bench.load import percentile
from integration.bench.relay import Call, busiest_second, rate
from integration.bench.report import Run, known, page, plain


def figure(*values: float, **more: object) -> Figure:
    return Figure("burst", "pods", "pods/s", values, **more)  # type: ignore[arg-type]


def test_the_median_of_the_repeats_is_held_against_what_is_asked() -> None:
    assert figure(1, 2, 9, target=at_most(2)).met
    assert not figure(1, 2.1, 9, target=at_most(2)).met
    assert figure(1).met is None


def test_where_no_repeat_may_miss_it_the_worst_counts() -> None:
    assert not figure(0, 0, 1, target=never_more_than(0)).met


def test_a_value_is_compared_with_that_of_the_same_repeat() -> None:
    slow_machine_in_the_second = figure(80, 8, target=at_least_times(0.8), compared=(100, 10))
    assert slow_machine_in_the_second.ratios == [0.8, 0.8]
    assert slow_machine_in_the_second.met
    assert not figure(21, target=at_most_times(2), compared=(10,)).met


def test_a_value_beyond_the_bound_meets_a_target_that_also_allows_a_multiple_of_the_floor() -> None:
    target = at_most(2.5, or_times=1.3)
    assert figure(2.4, target=target, compared=(1.0,)).met, "within the bound"
    assert figure(3.2, target=target, compared=(2.5,)).met, "the floor is slow, too"
    assert figure(3.3, target=target, compared=(2.5,)).met is False
    assert figure(2.6, target=target).met is False, "no floor was measured"
    assert target.asked("s", "floor") == "≤ 2.5 s, or 1.3 × floor"


def test_the_table_says_with_what_a_figure_is_compared() -> None:
    cells = figure(90, target=at_least_times(0.98), compared=(100,), compared_with="without metrics").cells()
    assert "≥ 0.98 × without metrics" in cells
    assert "without metrics: 100" in cells
    assert "floor: 100" in figure(90, compared=(100,)).cells()


def test_of_a_floor_of_nothing_there_is_no_share() -> None:
    idle = figure(0.2, compared=(0.0,))
    assert idle.ratios == []
    assert "" in idle.cells()


def test_no_more_digits_are_judged_than_are_shown() -> None:
    assert figure(8.003, target=at_most(8)).met
    assert not figure(8.03, target=at_most(8)).met


def test_repeats_that_were_measured_apart_are_one_figure() -> None:
    [one] = merged([figure(1, compared=(10,)), figure(2, compared=(20,))])
    assert (one.values, one.compared) == ((1, 2), (10, 20))


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile(range(100), 0.5) == 50
    assert percentile(range(100), 0.99) == 99
    assert percentile([7], 1) == 7


def calls(*times: float) -> list[Call]:
    return [Call("GET job/N", at, 0, 0) for at in times]


def test_a_call_a_second_is_a_rate_of_one_wherever_the_minute_begins() -> None:
    assert rate(calls(0.5, 1.5, 2.5)) == 1
    assert rate(calls(3)) == 0


def test_the_busiest_second_may_begin_anywhere() -> None:
    assert busiest_second(calls(0.0, 0.9, 1.0, 1.1, 1.8, 2.5)) == 4
    assert busiest_second([]) == 0


# --- what is kept -------------------------------------------------------------------------------------------------


def run_of(scenario: str, value: float, commit: str = "1a2b3c4") -> Run:
    about = {"date": "2026-11-21", "commit": commit, "machine": "2 cores", "slurm": "26.05", "kubernetes": "1.36"}
    return Run(about, [Figure(scenario, "pods a second", "pods/s", (value,), at_least_times(0.8), (100.0,))])


def test_figures_are_kept_as_they_were_measured(tmp_path: Path) -> None:
    runs = {"one": run_of("one", 90.0), "burst": run_of("burst", 70.0)}
    file = tmp_path / "performance.json"
    assert known(file) == {}
    file.write_bytes(msgspec.json.encode(plain(runs)))
    assert known(file) == runs


def test_the_page_says_which_scenario_is_of_which_commit() -> None:
    together = page({"one": run_of("one", 90.0), "burst": run_of("burst", 70.0)})
    assert "(2026-11-21, at commit 1a2b3c4)" in together
    apart = page({"one": run_of("one", 90.0), "burst": run_of("burst", 70.0, "5d6e7f8")})
    assert "(one: 2026-11-21, at commit 1a2b3c4; burst: 2026-11-21, at commit 5d6e7f8)" in apart
    assert "| one      | pods a second | ≥ 0.8 × floor | 90 pods/s |" in apart
