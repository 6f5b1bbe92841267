"""JSON to keep in a repository: one record a line, so that a new measurement changes few lines."""

import json
from typing import Any

WIDTH = 1000
"""What is no longer than this stands on one line."""


def compact_json(document: Any, *, indent: str = "") -> str:
    """The document as text; what is too long for a line is opened by one level, and so on."""
    flat = json.dumps(document, ensure_ascii=False)
    if len(flat) <= WIDTH or not isinstance(document, dict | list):
        return flat
    inner = f"{indent} "
    if isinstance(document, list):
        parts = [compact_json(item, indent=inner) for item in document]
        opening, closing = "[]"
    else:
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}: {compact_json(item, indent=inner)}"
            for name, item in document.items()
        ]
        opening, closing = "{}"
    body = f",\n{inner}".join(parts)
    return f"{opening}\n{inner}{body}\n{indent}{closing}"
