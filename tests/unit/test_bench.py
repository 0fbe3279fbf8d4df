"""What a benchmark's figures say of what was measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec

from integration.bench.catalogue import scenarios
from integration.bench.figures import Figure, at_least_times, at_most, at_most_times, merged, never_more_than
from integration.bench.limits import BURST, ENDS, MANY, burst_limit, ends_limit
from integration.bench.load import percentile
from integration.bench.relay import Call, busiest_second, rate
from integration.bench.report import PAGE, Run, known, page, plain


def figure(*values: float, **more: object) -> Figure:
    return Figure("burst", "pods", "pods/s", values, **more)


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
    together = page({"one": run_of("one", 90.0), "burst": run_of("burst", 70.0, "5d6e7f8")})
    assert "make bench` on 2026-11-21, with" in together
    assert "| one      | pods a second | ≥ 0.8 × floor | 90 pods/s |" in together
    rows = {
        row[1].strip(): row[-2].strip() for row in (line.split("|") for line in together.splitlines()) if len(row) > 9
    }
    assert (rows["scenario"], rows["one"], rows["burst"]) == ("measured at", "1a2b3c4", "5d6e7f8")


def test_the_page_names_the_first_and_the_last_day() -> None:
    later = run_of("burst", 70.0)
    later.about["date"] = "2026-11-23"
    assert "make bench` from 2026-11-21 to 2026-11-23, with" in page({"one": run_of("one", 90.0), "burst": later})


def test_the_page_names_the_scenarios_that_another_machine_measured() -> None:
    other = run_of("burst", 70.0)
    other.about["machine"] = "4 cores"
    together = page({"one": run_of("one", 90.0), "gang": run_of("gang", 90.0), "burst": other})
    assert "\n* 2 cores: all other scenarios\n* 4 cores: **burst**\n" in together
    assert "\n* 2 cores: all scenarios\n" in page({"one": run_of("one", 90.0)})


def test_the_page_names_the_scenarios_whose_targets_are_not_counted() -> None:
    some = [each.name for each in scenarios() if each.name != "one"]
    runs = {name: run_of(name, 90.0) for name in some}
    assert "Not counted, because no figures are kept of them: **one**." in page(runs)
    assert "Not counted" not in page(runs | {"one": run_of("one", 90.0)})


def test_the_page_describes_each_scenario() -> None:
    described = set(re.findall(r"\*\*([a-z-]+)\*\*:", PAGE.partition("## The scenarios")[2].partition("\n## ")[0]))
    assert {re.sub(r"-\d+$", "", each.name) for each in scenarios()} == described


# --- what the machine allows --------------------------------------------------------------------------------------


def cpu_figures(scenario: str, name: str, *of: tuple[str, float, float]) -> list[Figure]:
    """The CPU time of each process with the bridge and with the floor, ms.  name: of the figure, with {} for the process"""
    every = (*of, ("etcd", 0.5, 0.5), ("bench", 0.5, 0.5))
    return [Figure(scenario, name.format(process), "ms", (own,), None, (floor,)) for process, own, floor in every]


def test_the_limit_of_a_burst_is_computed_from_all_processes() -> None:
    """All processes of the floor take 4 ms of which the floor takes 0.5; a bridge of 1.5 ms would make it 5 ms."""
    of = [("bridge", 1.0, 0.5), ("slurmctld", 1.5, 1.0), ("slurmrestd", 1.0, 0.5), ("kube-apiserver", 2.0, 1.0)]
    figures = cpu_figures(BURST, "{}: CPU a pod", *of)
    figures[0] = replace(figures[0], target=at_most(1.5))
    figures.append(Figure(BURST, "pods bound a second", "pods/s", (200.0,), at_least_times(0.9), (250.0,)))
    text = " ".join(burst_limit(figures).split())
    assert (
        "4.00 ms of CPU time for a pod, of which the floor takes 0.50 ms; at 250 pods a second these are 1.00 cores"
        in text
    )
    assert "With the bridge it is 6.50 ms, at 200 pods a second 1.30 cores" in text
    assert "4.00 + 1.5 − 0.50 = 5.00 ms" in text
    assert "0.80 times as many pods" in text
    assert "0.9 of the floor needs a bridge of 0.94 ms on this machine, so 1.5 ms is not enough." in text
    assert "2.0 ms more for a pod beside the bridge" in text


def test_without_a_burst_of_4_000_no_limit_is_computed() -> None:
    assert burst_limit([figure(1)]) == ""


def test_the_limit_of_many_ends_is_computed_from_all_processes() -> None:
    """All processes take 8 ms for an end with the floor, and 9 ms with the bridge."""
    of = [("bridge", 2.0, 0.5), ("slurmctld", 1.0, 1.0), ("slurmrestd", 1.0, 1.5), ("kube-apiserver", 4.0, 4.0)]
    figures = cpu_figures(ENDS, MANY + "{}: CPU an end", *of)
    figures.append(Figure(ENDS, f"{MANY}the last tenth, p99", "s", (3.0,), at_most(2.5, or_times=1.3), (2.0,)))
    text = " ".join(ends_limit(figures).split())
    assert "8.0 ms of all processors with the floor and 9.0 ms with the bridge" in text
    assert "200 ends a second take 1.60 and 1.80 cores" in text
    assert "kube-apiserver and etcd take 4.5 and 4.5 ms, slurmctld and slurmrestd 2.5 and 2.0 ms" in text
    assert "the floor 0.5 and the bridge 2.0 ms" in text
    assert "waits 2.0 s with the floor and 3.0 s with the bridge" in text


def test_without_many_ends_no_limit_is_computed() -> None:
    assert ends_limit([figure(1)]) == ""
