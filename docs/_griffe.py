"""Lets one `:raises A, B: why` of a docstring name several errors, as the reference reads them."""

import re
from typing import Any

import griffe

_SEVERAL = re.compile(r"^([ ]*):raises (\w+(?:, \w+)+):(.*(?:\n\1 +\S.*)*)", re.MULTILINE)


class Raises(griffe.Extension):
    """A directive for each error, with the same reason."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _SEVERAL.sub(_one_each, obj.docstring.value)


def _one_each(found: re.Match[str]) -> str:
    indent, names, reason = found.groups()
    return "\n".join(f"{indent}:raises {name}:{reason}" for name in names.split(", "))
