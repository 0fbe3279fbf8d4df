"""Names of the code, settings and files in the documents exist; tables of files and of fields agree with the code.

Names of the code stand in backticks in README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/: `World.validate`, `quiet_s`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TOPS = ("bridge", "scheduler", "integration", "tests", "manifests", "examples", "docs", "compose")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`([^`\n]+)`")
STEP = re.compile(r"`((?:bridge|scheduler|integration)/[\w/]+\.py)` `([A-Za-z_][\w.]*)`")
OF_CLASS = re.compile(r"([A-Z]\w*[a-z]\w*)\.(\w+)")
SNAKE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
ROW = re.compile(r"^    ((?:\w+, )*\w+)  +\S", re.MULTILINE)
# Names of Slurm, Kubernetes and Go that no code of ours spells.
THEIRS = {
    "batch_sched_delay",
    "bf_interval",
    "billable_tres",
    "defer_batch",
    "disable_token_creation",
    "parentbased_always_on",
    "parentbased_traceidratio",
    "parse_quantity",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "run_seconds",
    "runbook_url",
    "tres_req_str",
    "update_time",
    "user_id",
}


def _trees() -> dict[str, ast.Module]:
    files = [path for top in ("scheduler", "bridge") for path in sorted((ROOT / top).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in files}


TREES = _trees()


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield path, node


def _attributes(node: ast.ClassDef) -> set[str]:
    """The names that the class defines: methods, fields, values, and attributes of `self`."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(each.name)
            found |= {arg.arg for arg in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)}
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            found.add(each.attr)
    return found


def _attributes_by_class() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for _, node in _classes():
        found.setdefault(node.name, set()).update(_attributes(node))
    bases = {node.name: [base.id for base in node.bases if isinstance(base, ast.Name)] for _, node in _classes()}
    for _ in range(6):  # levels of inheritance
        for name, parents in bases.items():
            found[name].update(*(found.get(parent, set()) for parent in parents))
    return found


ATTRIBUTES = _attributes_by_class()


def _words_of_code() -> set[str]:
    """Every identifier of bridge/ and scheduler/, every word in their texts, and their modules."""
    found: set[str] = set()
    for path, tree in TREES.items():
        found.add(Path(path).stem)
        for node in ast.walk(tree):
            for text in (getattr(node, field, None) for field in ("id", "attr", "arg", "name", "value")):
                if isinstance(text, str):
                    found.update(re.findall(r"\w+", text))
    return found


WORDS = _words_of_code()


def names_of(page: Path) -> list[str]:
    return NAME.findall(FENCED.sub("", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_path_of_the_project_exists(page: Path) -> None:
    paths = [
        name for name in names_of(page) if name.partition("/")[0] in TOPS and re.fullmatch(r"[\w./*-]+/[\w./*-]*", name)
    ]
    missing = [name for name in paths if not any(ROOT.glob(name.rstrip("/") + ("*" if "/decisions/" in name else "")))]
    assert [name for name in missing if name != "manifests/site/kustomization.yaml"] == [], (
        "the admin writes that overlay"
    )


def _defines(statement: ast.stmt) -> set[str]:
    """The names of the function, class or variables that the statement defines."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return {getattr(statement, "name", ""), *(each.id for each in targets if isinstance(each, ast.Name))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_name_beside_a_file_is_defined_there(page: Path) -> None:
    for path, name in STEP.findall(page.read_text(encoding="utf-8")):
        body: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        for part in name.split("."):
            found = [each for each in body if part in _defines(each)]
            assert found, f"{page.name}: {path} defines no {name}"
            body = getattr(found[0], "body", [])


def test_the_page_that_follows_one_pod_names_its_steps() -> None:
    assert len(STEP.findall((ROOT / "docs/follow-one-pod.md").read_text(encoding="utf-8"))) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_attribute_of_a_class_exists(page: Path) -> None:
    named = [match.groups() for name in names_of(page) if (match := OF_CLASS.fullmatch(name))]
    assert [(name, attribute) for name, attribute in named if attribute not in ATTRIBUTES.get(name, ())] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_name_with_an_underscore_is_one_of_the_code(page: Path) -> None:
    """Settings, values of `tuning`, metrics, functions, fields of Slurm's interface."""
    named = {name for name in names_of(page) if SNAKE.fullmatch(name)}
    named |= {name.removeprefix("tuning.") for name in names_of(page) if re.fullmatch(r"tuning\.\w+", name)}
    assert {name for name in named - WORDS - THEIRS if name.removesuffix("_total") not in WORDS} == set()


@pytest.mark.parametrize("top", ["scheduler", "bridge"])
def test_the_table_of_the_architecture_lists_every_file_and_package_and_no_other(top: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition(f"| in `{top}/` |")[2].partition("\n\n")[0]
    listed = {
        name.rstrip("/") for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in NAME.findall(row)
    }
    there = {path.stem for path in (ROOT / top).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert listed == there - {"__init__"}


PACKAGES = [
    path.parent for top in ("bridge", "scheduler", "integration") for path in sorted((ROOT / top).rglob("__init__.py"))
]


def _docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def _files_in_index(package: Path) -> set[str]:
    return set(re.findall(r"(?<![\w/])\w+\.py\b", _docstring(package)))


FILES_OF_ROW = re.compile(r"^ *(?:\w[\w ,]*  +\w+\.py\b|\w+\.py\b.*  \S)", re.MULTILINE)
INDEXED = [each for each in PACKAGES if FILES_OF_ROW.search(_docstring(each))]


@pytest.mark.parametrize("package", INDEXED, ids=lambda package: str(package.relative_to(ROOT)))
def test_the_index_of_a_package_lists_every_file(package: Path) -> None:
    there = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    assert _files_in_index(package) == there


def test_large_packages_have_an_index() -> None:
    assert len(INDEXED) > 10


def test_each_file_that_a_package_names_is_in_it() -> None:
    assert [
        f"{package.name}: {name}"
        for package in PACKAGES
        for name in _files_in_index(package)
        if not (package / name).exists()
    ] == []


def test_each_row_of_a_table_of_fields_names_a_field() -> None:
    """The docstring of a class lists fields as `name   meaning`: each name is an attribute or a parameter of the class."""
    wrong = []
    for path, node in _classes():
        for row in ROW.findall(ast.get_docstring(node, clean=False) or ""):
            wrong += [f"{path} {node.name}: {name}" for name in row.split(", ") if name not in ATTRIBUTES[node.name]]
    assert wrong == []


def test_each_row_of_a_table_of_parameters_names_a_parameter() -> None:
    """The same for functions, whose docstring lists parameters."""
    wrong = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = (
                    *node.args.posonlyargs,
                    *node.args.args,
                    *node.args.kwonlyargs,
                    node.args.vararg,
                    node.args.kwarg,
                )
                there = {each.arg for each in given if each is not None}
                docstring = ast.get_docstring(node) or ""
                rows = re.findall(r"^((?:\w+, )*\w+)   +\S", docstring, re.MULTILINE)
                wrong += [
                    f"{path} {node.name}: {name}" for row in rows for name in row.split(", ") if name not in there
                ]
    assert wrong == []
