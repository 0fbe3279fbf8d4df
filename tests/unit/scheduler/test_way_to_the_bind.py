"""The way of a granted workload to its bind is short: few files, and few returns to a file that was left."""

from __future__ import annotations

import pytest

from tests.way_to_the_bind import SCENARIOS

# Files and returns in the rule of GRANTED, and in the whole pass.  If a number falls, lower it here.  If a number grows,
# find out first what the new call asks that the way knows already.
REACHED = {
    "one pod": ((10, 7), (22, 40)),
    "queued pod": ((10, 7), (22, 40)),
    "gang on two nodes": ((10, 7), (22, 49)),
    "gang of two shapes": ((10, 7), (22, 45)),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_way_to_the_bind_enters_no_more_files_than_before(scenario: str) -> None:
    found = SCENARIOS[scenario]()
    rule, whole = found.rule, found.whole
    assert ((rule.files, rule.returns), (whole.files, whole.returns)) == REACHED[scenario]
