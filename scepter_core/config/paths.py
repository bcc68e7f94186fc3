"""Paths into a configuration, as overrides and references write them: `SOLVER.TRAIN_HOOKS[0].PRIORITY`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from scepter_core.config.nodes import MAX_DEPTH, Mapping, Node, Scalar, Sequence
from scepter_core.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Key:
    """The value behind a key."""

    key: str


@dataclass(frozen=True, slots=True)
class Item:
    """The entry of a list with this place (from 0), or with this NAME."""

    which: int | str


Step: TypeAlias = Key | Item

_STEP = re.compile(r"(?P<dot>\.?)(?P<key>[^.\[\]=\s]+)|\[(?P<which>[^\[\]]+)\]")


class PathError(Exception):
    """A path that is malformed, or leads nowhere. The message goes behind the path in a Problem."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def parse_path(text: str) -> list[Step]:
    """The steps of a path.

    Raises:
        PathError: it is not one.
    """
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        is_key = match is not None and match["key"] is not None
        if match is None or (is_key and bool(match["dot"]) != bool(steps)) or (not is_key and not steps):
            break
        which = match["which"]
        steps.append(Key(match["key"]) if is_key else Item(int(which) if _is_index(which) else which.strip()))
        position = match.end()
    if not steps or position < len(text):
        raise PathError(
            "not a path of keys", "write it as SOLVER.MAX_EPOCHS or SOLVER.TRAIN_HOOKS[LogHook].PRIORITY"
        )
    if len(steps) > MAX_DEPTH:
        raise PathError(f"nested more than {MAX_DEPTH} levels deep")
    return steps


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def path_text(steps: list[Step]) -> str:
    """The steps as a path."""
    parts = [f".{step.key}" if isinstance(step, Key) else f"[{step.which}]" for step in steps]
    return "".join(parts).removeprefix(".")


def find_item(node: Node, item: Item) -> tuple[list[Node], int]:
    """The entries of the list `node`, and the place of the one that `item` means.

    Raises:
        PathError: there is none, or there are several.
    """
    if not isinstance(node, Sequence):
        raise PathError("not a list")
    if isinstance(item.which, int):
        if item.which < len(node.items):
            return node.items, item.which
        raise PathError(f"the list has {len(node.items)} entries, counted from 0")
    names = [entry.name if isinstance(entry, Mapping) else None for entry in node.items]
    places = [place for place, name in enumerate(names) if name == item.which]
    if len(places) == 1:
        return node.items, places[0]
    if places:
        raise PathError(
            f"{len(places)} entries are named {item.which}",
            "pick one by its place: " + ", ".join(f"[{n}]" for n in places),
        )
    known = list(dict.fromkeys(name for name in names if name))
    here = f"the names there are: {', '.join(known)}" if known else "there are no named entries"
    raise PathError(f"no entry is named {item.which}; {here}", did_you_mean(item.which, known))


def find_key(node: Node, key: str) -> Node:
    """The value behind `key`.

    Raises:
        PathError: there is none.
    """
    if not isinstance(node, Mapping):
        kind = "a list" if isinstance(node, Sequence) else "a value"
        raise PathError(f"{kind}, not a section with keys")
    found = node.get(key) or (node.stale[key].node if key in node.stale else None)
    if found is None or (isinstance(found, Scalar) and found.delete):
        raise PathError(f"no key {key} is set here", did_you_mean(key, node.entries))
    return found
