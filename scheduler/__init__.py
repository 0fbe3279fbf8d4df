"""DECIDES.  Facts in, actions out: no clock, no network, no asyncio, no logging, only the standard library.

`World.apply(event)` changes the facts; `decide(world, now)` returns the plan: what to do about them.  All input and output is
in `bridge/`, which may import this package; never the other way round (an import contract checks this).
"""
