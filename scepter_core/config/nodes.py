"""The tree that a configuration is between its text and its sections: every node knows where it stands."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, TypeAlias

from scepter_core.errors import ConfigError, Mark

MAX_DEPTH = 100
"""How deep a configuration may be nested; nobody writes more, and every walk over a tree may rely on it."""


@dataclass(slots=True)
class Scalar:
    """One value.

    Attributes:
        mark: where it stands; None when it came from Python.
        text: what was written, without quotes.
        plain: whether it stood there without quotes, and so may be something else than a string.
        value: the text under the rules of YAML 1.2.
        raw: the text with its `${…}` references as written, once those are resolved; None without references.
        delete: whether it stands for the absence of its key (`!delete`).
    """

    mark: Mark | None
    text: str
    plain: bool
    value: Any
    raw: str | None = None
    delete: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands behind the colon."""
        return self.plain and not self.text and self.value is None and not self.delete

    @property
    def is_null(self) -> bool:
        """Whether it is null, written or by standing empty."""
        return self.value is None


@dataclass(slots=True)
class Entry:
    """A key's place and the value behind it."""

    key_mark: Mark | None
    node: Node


@dataclass(slots=True)
class Mapping:
    """A section: keys and values.

    Attributes:
        stale: entries of a section of another NAME that this one took the place of. Those that every thing
            of its kind has still hold; the others went with the old NAME.
        raw: the `${…}` reference that the whole mapping came from.
    """

    mark: Mark | None
    entries: dict[str, Entry]
    stale: dict[str, Entry] = field(default_factory=dict)
    raw: str | None = None

    def get(self, key: str) -> Node | None:
        """The value behind `key`, or None."""
        entry = self.entries.get(key)
        return entry.node if entry else None

    @property
    def name(self) -> str | None:
        """What its NAME says, or None."""
        node = self.get("NAME")
        return node.text if isinstance(node, Scalar) and not node.is_null else None


@dataclass(slots=True)
class Sequence:
    """A list."""

    mark: Mark | None
    items: list[Node]
    raw: str | None = None


Node: TypeAlias = Scalar | Mapping | Sequence

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + text: math.inf for sign in ("", "+") for text in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_MAX_DIGITS = 1000  # beyond, int() and str() of Python refuse or crawl; such a text stays a text


def plain_value(text: str) -> Any:
    """What a plain scalar is under the core schema of YAML 1.2."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if len(text) <= _MAX_DIGITS:
        if _INTEGER.fullmatch(text):
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text, 10)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def to_python(node: Node) -> Any:
    """The node as plain dicts, lists and values."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [to_python(item) for item in node.items]
    return {key: to_python(entry.node) for key, entry in node.entries.items()}


def from_python(value: Any, mark: Mark | None = None, *, depth: int = 0) -> Node:
    """The node for a value of a program: dicts, lists and tuples, scalars, or any object, kept as it is.

    Raises:
        ConfigError: it is nested deeper than a configuration may be, as a list that holds itself is.
    """
    if depth > MAX_DEPTH:
        raise ConfigError(f"the configuration is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, Scalar | Mapping | Sequence):
        return value
    if isinstance(value, dict):
        return Mapping(
            mark,
            {str(key): Entry(mark, from_python(item, mark, depth=depth + 1)) for key, item in value.items()},
        )
    if isinstance(value, list | tuple):
        return Sequence(mark, [from_python(item, mark, depth=depth + 1) for item in value])
    return _python_scalar(value, mark)


def _python_scalar(value: Any, mark: Mark | None) -> Scalar:
    if isinstance(value, str) and type(value) is str:
        return Scalar(mark, value, plain=False, value=value)
    if value is None or isinstance(value, bool):
        return Scalar(mark, {None: "null", True: "true", False: "false"}[value], plain=True, value=value)
    if isinstance(value, numbers.Integral) and type(value).__module__ != "enum":
        value = int(value) if not hasattr(value, "name") else value
    elif isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        value = float(value)
    text = (
        float_text(value)
        if isinstance(value, float)
        else str(fspath(value) if isinstance(value, PathLike) else value)
    )
    return Scalar(mark, text, plain=True, value=value)


def float_text(value: float) -> str:
    """A float as YAML 1.1 and 1.2 both read it: `0.001`, `1.0e-05`, `.inf`."""
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, exponent, power = repr(value).partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + exponent + power


def copy_node(node: Node, mark: Mark | None = None) -> Node:
    """A copy that shares no node with the original; with `mark`, all of it stands there."""
    where = mark or node.mark
    if isinstance(node, Scalar):
        return Scalar(where, node.text, node.plain, node.value, node.raw, node.delete)
    if isinstance(node, Sequence):
        return Sequence(where, [copy_node(item, mark) for item in node.items], node.raw)
    copied = Mapping(where, {}, {}, node.raw)
    for mine, theirs in ((copied.entries, node.entries), (copied.stale, node.stale)):
        mine.update(
            (key, Entry(mark or entry.key_mark, copy_node(entry.node, mark))) for key, entry in theirs.items()
        )
    return copied


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, stale ones included."""
    if isinstance(node, Sequence):
        yield from node.items
    elif isinstance(node, Mapping):
        yield from (entry.node for entry in node.entries.values())
        yield from (entry.node for entry in node.stale.values())


def measure(node: Node) -> tuple[int, int]:
    """How deep the tree is, and how many nodes it has. Works at any depth."""
    deepest = count = 0
    waiting = [(node, 0)]
    while waiting:
        current, depth = waiting.pop()
        deepest, count = max(deepest, depth), count + 1
        waiting.extend((child, depth + 1) for child in children(current))
    return deepest, count


def source_text(node: Node) -> str:
    """The node as a user would recognise it in a message: a scalar as written, the others by their kind."""
    if isinstance(node, Mapping):
        return "a section" if node.name is None else f"a section named {node.name}"
    if isinstance(node, Sequence):
        return f"a list of {len(node.items)}"
    if node.is_empty:
        return "nothing"
    text = node.text if len(node.text) <= 200 else node.text[:200] + "…"
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if node.plain else f'"{text}"'
