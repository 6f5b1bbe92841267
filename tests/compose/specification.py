"""A parser of the whole Compose specification, where it is installed."""

import re
from typing import Any

import pytest
import yaml


def service_names(model: dict[str, Any]) -> list[str]:
    """The services of a Compose file that the specification allows; anything else is an error."""
    compose_spec = pytest.importorskip("compose_spec", reason="pip install compose-spec")
    # Docker takes a tag, for people, and a digest, which it pulls, together; this parser does not.
    text = re.sub(r":[^:@\s]+(?=@sha256:)", "", yaml.safe_dump(model))
    parsed = compose_spec.PyCompose.from_yaml(text)
    parsed.validate()
    return sorted(parsed.service_names())
