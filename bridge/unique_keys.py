"""YAML in which a mapping has each key once.

YAML takes the last of two equal keys.  Of two lists of rules, or of two lists of annotations, the first one would have no
effect, and nothing would say so.
"""

from __future__ import annotations

from typing import Any

import yaml


class UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that raises DuplicateKeyError if a mapping has a key twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """As SafeLoader calls it, before it merges mappings (<<), which may replace a key."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise DuplicateKeyError(key.value, key.start_mark.line + 1)
                seen.add(key.value)
        return node


class DuplicateKeyError(Exception):
    """A mapping has a key twice; the text is a sentence."""

    def __init__(self, key: str, line: int) -> None:
        super().__init__(f'"{key}" is given twice, the second time in line {line}.')
