"""Single values, by the type that is wanted: strict where YAML has the type already, helpful where it has not."""

from __future__ import annotations

import dataclasses
import enum
import math
import pathlib
import re
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

from scepter_core.config.annotations import LISTS, MAPPINGS, SETS, is_callable, is_class
from scepter_core.config.nodes import Scalar
from scepter_core.config.section import Reference

_BOOLEANS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

MISMATCH: Any = object()
"""What a reading returns when the scalar is not of the type."""


def scalar_value(node: Scalar, bare: Any) -> Any:
    """The scalar as a value of the bare annotation, or a mark of mismatch."""
    value = node.value
    if bare in (Any, object):
        return value
    if bare in SCALARS:
        return SCALARS[bare](node)
    if get_origin(bare) is Literal:
        return _literal(node, get_args(bare))
    if is_callable(bare):
        return _reference(node)
    if (
        isinstance(bare, type)
        and not isinstance(value, str | int | float | None)
        and isinstance(value, get_origin(bare) or bare)
    ):
        return value  # an object that a program gave
    if is_class(bare, enum.Enum):
        return _member(node, bare)
    container = get_origin(bare) or bare
    if container in (*LISTS, *SETS, *MAPPINGS, tuple) or dataclasses.is_dataclass(container) or node.is_null:
        return MISMATCH
    if is_class(bare, str):
        return _text(node)
    if isinstance(bare, type) and issubclass(bare, pathlib.PurePath):
        return bare(node.text) if "\0" not in node.text else MISMATCH
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and getattr(bare, "__name__", "") == "timedelta" else node.text


def _boolean(node: Scalar) -> Any:
    if isinstance(node.value, bool):
        return node.value
    if isinstance(node.value, int) and node.value in (0, 1):
        return bool(node.value)
    return (
        _BOOLEANS.get(node.text.lower(), MISMATCH) if node.plain and isinstance(node.value, str) else MISMATCH
    )


def _integer(node: Scalar) -> Any:
    value = node.value
    if isinstance(value, bool):
        return MISMATCH
    if isinstance(value, int):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else MISMATCH


def _number(node: Scalar) -> Any:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISMATCH
    try:
        return float(value)
    except OverflowError:  # an integer of more than 300 digits
        return math.inf if value > 0 else -math.inf


def _text(node: Scalar) -> Any:
    return MISMATCH if node.is_null and node.plain else node.text


def _null(node: Scalar) -> Any:
    return None if node.is_null or (node.plain and node.text == "None") else MISMATCH


def _literal(node: Scalar, values: tuple[Any, ...]) -> Any:
    for wanted in values:
        if type(wanted) is type(node.value) and wanted == node.value:
            return wanted
    integer = _integer(node)
    for wanted in values:
        if type(wanted) is int and integer is not MISMATCH and wanted == integer:
            return wanted
        if isinstance(wanted, enum.Enum) and (wanted is node.value or wanted.value == node.value):
            return wanted
    for wanted in values:
        if isinstance(wanted, str) and not node.is_null and wanted == node.text:
            return wanted
    truth = _boolean(node)
    return next((wanted for wanted in values if isinstance(wanted, bool) and wanted is truth), MISMATCH)


def _member(node: Scalar, enumeration: Any) -> Any:
    if isinstance(node.value, enumeration):
        return node.value
    for member in enumeration.__members__.values():
        if type(member.value) is type(node.value) and member.value == node.value:
            return member
    for member in enumeration.__members__.values():
        if isinstance(member.value, str) and member.value == node.text:
            return member
    return enumeration.__members__.get(node.text, MISMATCH)


def _reference(node: Scalar) -> Any:
    if callable(node.value) and not isinstance(node.value, str):
        return node.value
    return (
        Reference(node.text) if isinstance(node.value, str) and _REFERENCE.fullmatch(node.text) else MISMATCH
    )


SCALARS: dict[Any, Callable[[Scalar], Any]] = {
    bool: _boolean,
    int: _integer,
    float: _number,
    str: _text,
    type(None): _null,
    None: _null,
}


def union_value(node: Scalar, bare: list[Any]) -> Any:
    """The scalar under the member that its own type picks, else as text, else as the first that takes it."""
    value = node.value
    if any(choice in (None, type(None)) for choice in bare) and _null(node) is None:
        return None
    for choice in bare:
        literal = _literal(node, get_args(choice)) if get_origin(choice) is Literal else MISMATCH
        if literal is not MISMATCH and (type(literal) is type(value) or isinstance(literal, str)):
            return literal
    if type(value) in bare:
        return value if type(value) is not str else node.text
    if isinstance(value, int) and not isinstance(value, bool) and float in bare:
        return _number(node)
    if str in bare and not node.is_null:
        return node.text
    ordered = sorted(bare, key=lambda choice: choice in (Any, object))
    return next(
        (found for choice in ordered if (found := scalar_value(node, choice)) is not MISMATCH), MISMATCH
    )
