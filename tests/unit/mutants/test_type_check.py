"""The type checker notices mutants, and the mutants of one round do not disturb each other."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.mutations import mutants_of
from tests.mutants.type_check import rejected

SOURCE = '''
class Word:
    """Has methods, with comments."""

    @property
    def size(self) -> int:
        return 1

    def fits(self, text: str | None, least: int) -> bool:
        # None has no length
        return text is not None and len(text) >= least and least > 0


def longer(first: str | None, second: str) -> bool:
    if first is None:
        return True
    return len(first) > len(second)


def hidden(text: str | None) -> bool:
    return text is not None and len(text) > len(text.upper(1))  # type: ignore[call-arg]
'''


def test_a_mutant_without_its_comparison_with_none_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.mypy]\nstrict = true\nwarn_unreachable = true\n")
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "__init__.py").touch()
    (tmp_path / "made" / "one.py").write_text(SOURCE)
    work = tmp_path / "work"
    work.mkdir()
    found = rejected(mutants_of("made/one.py", SOURCE).mutants, tmp_path, "made", work)
    assert {(each.function, each.after) for each in found} == {
        ("Word.fits", "return len(text) >= least and least > 0"),
        ("Word.fits", "return text is None and len(text) >= least and (least > 0)"),
        ("Word.fits", "return text is not None or len(text) >= least or least > 0"),
        ("longer", "if first is None: pass"),
        ("longer", "if first is not None:"),
    }, "and none of the function that is not judged, because an error is hidden in it"
