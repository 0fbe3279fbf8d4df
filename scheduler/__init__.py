"""DECIDES.  Facts in, actions out: no clock, no network, no asyncio, no logging, only the standard library.

`World.apply(event)` folds what was observed; `decide(world, now)` says what to do about it.  Everything that touches
the world is in `bridge/`, which may import this package; never the other way round (an import contract checks this).
"""
