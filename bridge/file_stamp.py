"""Has a file changed since it was read?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Stamp(NamedTuple):
    """Changes when a file is written or replaced, also behind a symbolic link.  written_ns: epoch nanoseconds; size: bytes"""

    device: int
    inode: int
    written_ns: int
    size: int


def stamp_of(path: str | Path) -> Stamp:
    """The stamp of a file as it is now.  Raises OSError."""
    seen = os.stat(path)
    return Stamp(seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_size)
