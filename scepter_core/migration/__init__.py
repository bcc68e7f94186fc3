"""From SCEPTER to here: its checkpoints, and what its classes import. Importing this package imports no torch."""

from __future__ import annotations

from scepter_core.migration.converting import Conversion, convert
from scepter_core.migration.templates import dict_to_yaml

__all__ = ["Conversion", "convert", "dict_to_yaml"]
