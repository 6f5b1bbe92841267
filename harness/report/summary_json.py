"""`summary.json`: the one place where a run's summary becomes JSON, and JSON a summary."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from harness.config import RunConfig
from harness.judge.cycle import Cycle
from harness.report.model import Summary

SUMMARY_FILE = "summary.json"
_FAMILY = "asyncdlock-summary/"

T = TypeVar("T")


class NoSummary(ValueError):
    """The folder is not that of a finished run; the message says so in one sentence."""


def write_summary(folder: Path, summary: Summary) -> Path:
    """:raises OSError: the folder cannot be written to."""
    path = folder / SUMMARY_FILE
    path.write_text(json.dumps(to_json(summary), indent=2, ensure_ascii=False) + "\n")
    return path


def read_summary(folder: Path) -> Summary:
    """What a run found out. What an older version did not write has its default.

    :raises NoSummary: there is none, or none that can be read.
    """
    path = folder / SUMMARY_FILE
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise NoSummary(f"{folder} holds no {SUMMARY_FILE}: name the folder of a finished run") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NoSummary(f"cannot read {path}: {reason}") from None
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(_FAMILY):
        raise NoSummary(f"{path} is not the summary of a run")
    try:
        return from_json(Summary, document)
    except (TypeError, ValueError, AttributeError) as error:
        raise NoSummary(f"{path} is damaged: {error}") from None


def to_json(value: Any) -> Any:
    """Dataclasses as objects, sequences as arrays; optional fields without a value are left out."""
    if isinstance(value, RunConfig | Cycle):
        return value.to_json()
    if is_dataclass(value):
        return {
            entry.name: to_json(part)
            for entry in fields(value)
            if (part := getattr(value, entry.name)) is not None or not entry.metadata.get("optional")
        }
    if isinstance(value, Mapping):
        return {name: to_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    return value


def from_json(kind: type[T], document: Mapping[str, Any]) -> T:
    """The dataclass of an object. What is absent has its default; what is not known is left out.

    :raises TypeError: something without a default is absent, or of the wrong kind.
    """
    hints = get_type_hints(kind)
    values = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.name in document:
            values[entry.name] = _value(hints[entry.name], document[entry.name])
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise TypeError(f"{kind.__name__} without {entry.name}")
    return kind(**values)


def _value(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, UnionType):
        (kind, *_) = (argument for argument in arguments if argument is not NoneType)
        return None if value is None or (value == {} and is_dataclass(kind)) else _value(kind, value)
    if hint is RunConfig:
        return RunConfig.from_json(value)
    if is_dataclass(hint):
        return from_json(hint, value)  # type: ignore[arg-type]
    if origin is tuple:
        return tuple(_value(arguments[0], part) for part in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: _value(arguments[1], part) for name, part in value.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [_value(arguments[0], part) for part in value]
    return value
