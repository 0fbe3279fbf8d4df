"""Write the pages: python -m integration.reference."""

from __future__ import annotations

from integration.reference.pages import PAGES

for path, text in PAGES.items():
    path.write_text(text(), encoding="utf-8")
