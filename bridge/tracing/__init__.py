"""One trace for each workload: where the time from its creation to the end of its job went (O3, docs/tracing.md).

`recorder` turns what the loop observes into spans: `allocations` makes the spans until the bind, `runs` the spans after it.
The `times` and the ids (`span`) follow from facts, so a restarted bridge continues the trace.  `export` queues `finished`
spans; a thread of its own encodes (`otlp`) and sends them.
"""
