"""One trace for each workload: where the time between its creation and its release went (O3, docs/tracing.md).

`recorder` turns what the loop observes into spans: `allocations` until the bind, `runs` after it, with the `times` and ids
(`span`) that follow from facts, so a restarted bridge continues the trace.  `export` queues `finished` spans, and the thread
that sends them encodes them (`otlp`).
"""
