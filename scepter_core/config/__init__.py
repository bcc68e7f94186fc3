"""From YAML text to validated sections. This package knows no registry and no key of the engine."""

from __future__ import annotations

from scepter_core.config.compose import compose, finish
from scepter_core.config.nodes import Mapping, Node, Scalar, Sequence, from_python, to_python
from scepter_core.config.section import (
    FreeSection,
    MissingKey,
    Named,
    NamedThing,
    Reference,
    Section,
    UnknownName,
    notices,
)
from scepter_core.config.signature import keywords, section_model, style_of
from scepter_core.config.source import parse_yaml, read_yaml
from scepter_core.config.validate import Resolve, validate

__all__ = [
    "FreeSection",
    "Mapping",
    "MissingKey",
    "Named",
    "NamedThing",
    "Node",
    "Reference",
    "Resolve",
    "Scalar",
    "Section",
    "Sequence",
    "UnknownName",
    "compose",
    "finish",
    "from_python",
    "keywords",
    "notices",
    "parse_yaml",
    "read_yaml",
    "section_model",
    "style_of",
    "to_python",
    "validate",
]
