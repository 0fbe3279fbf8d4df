"""Times and texts as people read them."""

from __future__ import annotations

import pytest

from scheduler.model.text import span


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (0.02, "1 s"), (11.9984, "12 s"), (300.0, "300 s"), (1.4, "1 s")]
)
def test_a_span_of_time_is_said_in_whole_seconds(seconds: float, said: str) -> None:
    assert span(seconds) == said
