"""Sections back to YAML that a person can read and that reads back the same."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping as AbstractMapping
from typing import Any, TypeAlias

import yaml
from pydantic import BaseModel

from scepter_core.config.annotations import as_number
from scepter_core.config.nodes import Entry, Mapping, Node, Scalar, Sequence, float_text, plain_value
from scepter_core.config.section import FreeSection, keys_of
from scepter_core.locations import MASK, shown, without_passwords

_INDICATORS = set("?:,[]{}#&*!|>'\"%@`=<-")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
_RESOLVER = yaml.SafeLoader(
    ""
)  # for what YAML 1.1 takes a plain text for: other readers of our files go by that


@dataclasses.dataclass(frozen=True, slots=True)
class _Text:
    """One value, as it is written."""

    text: str


_Tree: TypeAlias = "_Text | list[_Tree] | dict[str, _Tree] | None"
"""What is written; None for what YAML cannot write, and so is left out."""


def dump(section: BaseModel, replaced: AbstractMapping[str, Any] | None = None) -> str:
    """The section as YAML, every key with its value.

    References are written as they stood in the source, keys whose default is null stay empty.

    Args:
        section: a validated section.
        replaced: values to write for top-level keys instead of the section's own.
    """
    tree = _section(section)
    for key, value in (replaced or {}).items():
        tree[key] = _tree(value, None)
    return "\n".join(_lines(tree)) + "\n"


def verbatim(node: Scalar) -> Any:
    """A value for `replaced` that is written as the node's source."""
    return _Text(_raw_text(node))


def _section(section: BaseModel) -> dict[str, _Tree]:
    node = getattr(section, "_node", None)
    entries: dict[str, Entry] = {**node.stale, **node.entries} if isinstance(node, Mapping) else {}
    tree: dict[str, _Tree] = {}
    for key, name in sorted(keys_of(type(section)).items(), key=lambda item: item[0] != "NAME"):
        is_set = name in section.model_fields_set
        if isinstance(section, FreeSection) and not is_set:
            continue  # code that declares no keys has defaults of its own
        value = section.__dict__.get(name)
        field = type(section).__pydantic_fields__[name]
        if not is_set and (callable(value) or (value is None and field.get_default() is None)):
            tree[key] = _Text("")  # follows another key, or is an object that has a name only by chance
        else:
            node_of_key = entries[key].node if key in entries and is_set else None
            tree[key] = _tree(as_number(value, field.annotation), node_of_key)
    for key, value in (section.model_extra or {}).items():
        empty = isinstance(section, FreeSection) and key in section._empty
        tree[key] = _Text("") if empty else _tree(value, entries[key].node if key in entries else None)
    return _hidden({key: value for key, value in tree.items() if value is not None}, section)


def _hidden(tree: dict[str, _Tree], source: Any) -> dict[str, _Tree]:
    """The options of a file system with a mask for each secret that stands there in clear."""
    if not getattr(source, "holds_secrets", "PROTOCOL" in tree):
        return tree
    return {key: _hidden_value(key, value) for key, value in tree.items()}


def _hidden_value(key: str, value: _Tree) -> _Tree:
    if isinstance(value, dict):
        return {name: _hidden_value(name, below) for name, below in value.items()}
    if not isinstance(value, _Text) or value.text in ("", "null") or shown(key, value.text) != MASK:
        return value
    return _Text(_quote(MASK))


def _tree(value: Any, node: Node | None) -> _Tree:
    if isinstance(value, _Text):
        return value
    if (
        node is not None
        and node.raw is not None
        and (not isinstance(node, Scalar) or _unchanged(value, node))
    ):
        return _Text(_raw_text(node) if isinstance(node, Scalar) else _quoted(node.raw))
    if isinstance(value, BaseModel):
        return _section(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name.upper(): getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, AbstractMapping):
        below = node.entries if isinstance(node, Mapping) else {}
        pairs = {str(k): _tree(v, below[str(k)].node if str(k) in below else None) for k, v in value.items()}
        return _hidden({key: item for key, item in pairs.items() if item is not None}, None)
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    elif not isinstance(value, list | tuple) and hasattr(value, "__iter__") and hasattr(value, "appendleft"):
        value = list(value)
    if isinstance(value, list | tuple):
        items = (
            node.items
            if isinstance(node, Sequence) and len(node.items) == len(value)
            else [None] * len(value)
        )
        trees = [_tree(item, below) for item, below in zip(value, items, strict=True)]
        return None if any(tree is None for tree in trees) else trees
    return _scalar(value)


def _unchanged(value: Any, node: Scalar) -> bool:
    """Whether the value is still what the source says, and not what a program put there since."""
    return bool(value is node.value or str(value) == node.text or value == node.value)


def _scalar(value: Any) -> _Tree:
    if isinstance(value, enum.Enum):
        return _scalar(value.value if isinstance(value.value, str | int | float) else value.name)
    if value is None or isinstance(value, bool):
        return _Text({None: "null", True: "true", False: "false"}[value])
    if isinstance(value, int):
        return _Text(str(int(value)))
    if isinstance(value, float):
        return _Text(float_text(float(value)))
    if isinstance(value, datetime.date | datetime.time):
        return _Text(scalar_text(value.isoformat()))
    if isinstance(value, datetime.timedelta):
        return _Text(float_text(value.total_seconds()))
    if isinstance(value, bytes):
        return _Text(scalar_text(value.decode("utf-8", "replace")))
    if callable(value) and not isinstance(value, str):
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
        return None if module is None or "<" in name else _Text(scalar_text(f"{module}:{name}"))
    text = str(value)
    return None if text.startswith("<") and text == repr(value) else _Text(scalar_text(without_passwords(text)))


def scalar_text(text: str) -> str:
    """A string as YAML that reads back as that string, with quotes only where needed; `${` is escaped."""
    return _quoted(text.replace("${", "$${"))


def _raw_text(node: Scalar) -> str:
    raw = without_passwords(node.raw if node.raw is not None else node.text)
    if node.plain:
        return raw if _is_plain(raw) else _quoted(raw)
    return _quote(raw)


def _quoted(text: str) -> str:
    return text if _is_plain(text) and _stays_text(text) else _quote(text)


def _quote(text: str) -> str:
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"  # half a surrogate pair is no character
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _is_plain(text: str) -> bool:
    """Whether the text can stand without quotes in a block."""
    if not text or not text.isprintable() or text != text.strip() or text.startswith(("---", "...")):
        return False
    starts_well = text[0] not in _INDICATORS or (text[0] == "-" and len(text) > 1 and text[1] not in " ")
    return starts_well and ": " not in text and not text.endswith(":") and " #" not in text


def _stays_text(text: str) -> bool:
    """Whether neither YAML 1.2 nor 1.1 takes the plain text for anything but a string."""
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return isinstance(plain_value(text), str) and tag == "tag:yaml.org,2002:str"


def _lines(tree: _Tree) -> list[str]:
    if isinstance(tree, _Text):
        return [tree.text]
    if not tree:
        return ["{}" if isinstance(tree, dict) else "[]"]
    lines: list[str] = []
    if isinstance(tree, dict):
        for key, value in tree.items():
            below = _lines(value)
            name = _quoted(key) + ":"
            if isinstance(value, _Text) or not value:
                lines.append(f"{name} {below[0]}".rstrip())
            else:
                lines += [name, *("  " + line for line in below)]
        return lines
    for item in tree:
        first, *rest = _lines(item)
        lines += [f"- {first}".rstrip(), *("  " + line for line in rest)]
    return lines
