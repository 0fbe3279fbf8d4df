"""`python -m integration.protobuf`: see the package."""

from integration.protobuf import FILE, table

FILE.write_text(table(), encoding="utf-8")
