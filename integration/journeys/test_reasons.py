"""The bridge has words for exactly the reasons that this Slurm's own library has."""

from __future__ import annotations

import os
import subprocess
import sys

from integration.reference.page_reasons import names
from integration.rigging import places

# The library needs the libc of the folder that Slurm is installed in; so that folder's loader runs Python.
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SCRIPT = """
import ctypes, sys
word = ctypes.CDLL(sys.argv[1]).slurm_job_state_reason_string
word.restype, word.argtypes = ctypes.c_char_p, [ctypes.c_uint32]
print(*{word(number).decode() for number in range(1000)})
"""


def test_every_reason_of_this_slurm_is_in_the_list() -> None:
    root = places.slurm_root()
    folders = [root / LIBRARIES, root / LIBRARIES / "slurm-wlm"]
    loader = [str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", ":".join(map(str, folders))]
    library = str(folders[1] / "libslurmfull.so")
    done = subprocess.run(
        [*loader, os.path.realpath(sys.executable), "-c", SCRIPT, library], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) - {"InvalidReason"} == set(names())
