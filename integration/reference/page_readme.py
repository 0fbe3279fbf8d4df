"""README: people write it; its table of figures is computed from the benchmark."""

from __future__ import annotations

from integration.bench.figures import FLOOR, Figure
from integration.bench.report import known
from integration.readme import ROOT
from integration.reference.blocks import with_block
from integration.reference.markdown import table

PAGE = ROOT / "README.md"

# What a row shows, and the scenario and name of its figure.
ROWS = (
    ("create → bind, one pod at a time: median", "one", "create → bind, p50"),
    ("the same: p99", "one", "create → bind, p99"),
    ("a burst of 1,000 pods", "burst-1000", "pods bound a second"),
    ("a burst of 4,000 pods", "burst-4000", "pods bound a second"),
    ("CPU time of the bridge for a pod of that burst", "burst-4000", "bridge: CPU a pod"),
    ("Slurm calls for a pod of that burst", "burst-4000", "Slurm calls a pod"),
    ("a gang of 512 pods: last create → all bound", "gang-512", "last create → all bound"),
    ("a gang of 2,048 pods: last create → all bound", "gang-2048", "last create → all bound"),
    ("capacity becomes free → the next bind: median", "freed", "freed → next bind, p50"),
    ("10,000 bound pods: memory of the bridge", "bound", "bridge: peak memory"),
    ("10,000 bound pods, nothing happens: CPU of the bridge", "bound", "bridge: CPU"),
    ("10,000 bound pods: the bridge is restarted → a new pod is bound", "bound", "restart → a pod is bound, median"),
)


def text() -> str:
    """The page with the computed table."""
    figures = [figure for run in known(ROOT / "docs" / "performance.json").values() for figure in run.figures]
    of = {(figure.scenario, figure.name): figure for figure in figures}
    rows = [(label, *_cells(of[scenario, name])) for label, scenario, name in ROWS]
    return with_block(
        PAGE.read_text(encoding="utf-8"), "figures", table(("", "measured", "floor", "target", "met"), rows)
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    """The columns "measured", "floor", "target" and "met"; a column without a value is empty."""
    _, _, asked, measured, _, compared, _, met = figure.cells()
    _, _, floor = compared.rpartition(f"{FLOOR}: ")
    return measured, f"{floor} {figure.unit}" if floor else "", asked, met
