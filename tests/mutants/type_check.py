"""Which mutants the type checker rejects: `make types` notices these, so no test has to.

Most of them drop a comparison with None in front of an attribute.  Mutants of different functions are checked together: in
each round each function has at most one of its mutants, and an error within a function is the error of that mutant.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tests.mutants.mutations import Mutant, Outermost

_ERROR = re.compile(r"(?P<path>[^:]+):(?P<line>\d+): error:")
_Function = tuple[str, str, int]  # path, name and first line


def rejected(mutants: Sequence[Mutant], root: Path, package: str, work: Path) -> list[Mutant]:
    """The mutants that mypy rejects, with the configuration of the project.

    root   has the package and pyproject.toml
    work   an empty directory, or one of an earlier call: its cache of types is used again
    """
    of_function: defaultdict[_Function, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        of_function[_function(mutant.outermost)].append(mutant)
    # A function may have an error as soon as it is written anew, without its comments: its mutants are not judged.
    unjudged = _failing({key: (of[0], False) for key, of in of_function.items()}, root, package, work)
    found = []
    for rank in range(max((len(of) for of in of_function.values()), default=0)):
        tried = {key: (of[rank], True) for key, of in of_function.items() if rank < len(of) and key not in unjudged}
        found += [tried[key][0] for key in _failing(tried, root, package, work)]
    return found


def _function(outermost: Outermost) -> _Function:
    return outermost.path, outermost.name, _first_line(outermost)


def _first_line(outermost: Outermost) -> int:
    return min(each.lineno for each in (outermost.node, *outermost.node.decorator_list))


def _failing(
    tried: Mapping[_Function, tuple[Mutant, bool]], root: Path, package: str, work: Path
) -> Collection[_Function]:
    """The functions in which mypy finds an error.  tried: each with a mutant of it, and whether the function is mutated"""
    shutil.rmtree(work / package, ignore_errors=True)
    shutil.copytree(root / package, work / package, ignore=shutil.ignore_patterns("__pycache__"))
    by_path: defaultdict[str, list[tuple[Mutant, bool]]] = defaultdict(list)
    for (path, _, _), mutant in tried.items():
        by_path[path].append(mutant)
    lines = {path: _write(work / path, of) for path, of in by_path.items()}
    return {lines[path][line] for path, line in _errors(root, package, work) if line in lines.get(path, {})}


def _write(file: Path, tried: Sequence[tuple[Mutant, bool]]) -> dict[int, _Function]:
    """Write these functions of the file anew.  Returns the functions by each of their lines."""
    source, found, done = tried[0][0].outermost.source.splitlines(), dict[int, _Function](), 0
    written: list[str] = []
    for mutant, is_mutated in sorted(tried, key=lambda each: _first_line(each[0].outermost)):
        outermost = mutant.outermost
        written += source[done : _first_line(outermost) - 1]
        text = _text(mutant, is_mutated).splitlines()
        found |= dict.fromkeys(range(len(written) + 1, len(written) + len(text) + 1), _function(outermost))
        written += text
        done = outermost.node.end_lineno or done
    file.write_text("\n".join((*written, *source[done:])) + "\n")
    return found


def _text(mutant: Mutant, is_mutated: bool) -> str:
    back = mutant.edit.swap() if is_mutated else None
    try:
        return textwrap.indent(
            ast.unparse(ast.fix_missing_locations(mutant.outermost.node)), 4 * " " * len(mutant.outermost.classes)
        )
    finally:
        if back is not None:
            back.swap()


def _errors(root: Path, package: str, work: Path) -> Iterator[tuple[str, int]]:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(root / "pyproject.toml"),
        "--cache-dir",
        ".types",
        package,
    ]
    ran = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"mypy ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
    for line in ran.stdout.splitlines():
        if error := _ERROR.match(line):
            yield error["path"], int(error["line"])
