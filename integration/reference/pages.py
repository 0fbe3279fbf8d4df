"""Which pages there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from integration.bench import report
from integration.readme import ROOT
from integration.reference import (
    page_annotations,
    page_findings,
    page_messages,
    page_readme,
    page_reasons,
    page_reliability,
    page_scale,
    page_settings,
)

PAGES: Mapping[Path, Callable[[], str]] = {
    ROOT / "docs" / "settings.md": page_settings.text,
    ROOT / "docs" / "annotations.md": page_annotations.text,
    ROOT / "docs" / "messages.md": page_messages.text,
    ROOT / "docs" / "reasons.md": page_reasons.text,
    ROOT / "docs" / "findings.md": page_findings.text,
    ROOT / "docs" / "reliability.md": page_reliability.text,
    ROOT / "docs" / "scale.md": page_scale.text,
    ROOT / "README.md": page_readme.text,
    ROOT / "docs" / "performance.md": lambda: report.page(report.known(ROOT / "docs" / "performance.json")),
}
