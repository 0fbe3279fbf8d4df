"""How long a test waits for a condition before it fails.

Tests wait for conditions and do not time: this is no expectation, only the end of a test that hangs.  A machine with few
cores that runs several suites at once is the measure.
"""

from __future__ import annotations

PATIENCE_S = 300.0
