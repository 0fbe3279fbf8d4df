"""Parts of a document that are computed; people write the rest of it.

A part stands between the lines `<!-- generated: NAME -->` and `<!-- end: NAME -->`.
"""

from __future__ import annotations

import re


def with_block(page: str, name: str, text: str) -> str:
    """The page with this text as its part of that name; ValueError if the page has no such part, or several."""
    begin, end = (re.escape(line) for line in (f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->\n"))
    filled, count = re.subn(f"({begin}).*?({end})", lambda found: found[1] + text + found[2], page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has {count} parts of the name {name!r}")
    return filled
