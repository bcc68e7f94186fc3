"""From a file and the overrides of a command line to one tree: inheritance, overrides, interpolation."""

from __future__ import annotations

import os
from collections.abc import Sequence as AbstractSequence
from datetime import datetime

from scepter_core.config.interpolate import Interpolator, resolve_alone
from scepter_core.config.nodes import MAX_DEPTH, Entry, Mapping, Node, Scalar, Sequence, copy_node, measure
from scepter_core.config.paths import Item, Key, PathError, Step, find_item, parse_path, path_text
from scepter_core.config.source import parse_yaml, read_yaml
from scepter_core.errors import ConfigError, Mark, Problem

_OVERRIDE = 'override "'


def compose(path: str | os.PathLike[str], overrides: AbstractSequence[str] = (), *, now: datetime) -> Mapping:
    """The file's tree with what it inherits, the overrides applied and every reference resolved.

    Args:
        path: the YAML file.
        overrides: texts `A.B=value`, applied in their order.
        now: the run's start, for `${now:…}`.

    Raises:
        ConfigError: with every problem of the phase that failed: reading, then overrides and interpolation.
    """
    problems: list[Problem] = []
    root = _read_with_bases(os.fspath(path), now, problems, ())
    if problems:
        raise ConfigError(problems)
    return finish(root, overrides, now=now)


def finish(root: Mapping, overrides: AbstractSequence[str] = (), *, now: datetime) -> Mapping:
    """The tree with overrides applied, removed keys gone and every reference resolved; it is changed itself.

    Raises:
        ConfigError: with every problem of the overrides and references.
    """
    problems: list[Problem] = []
    for text in overrides:
        _override(root, text, problems)
    _sweep(root)
    Interpolator(root, now, problems).run()
    if measure(root)[0] > MAX_DEPTH:
        problems.append(Problem(f"nested more than {MAX_DEPTH} levels deep", mark=root.mark))
    if problems:
        raise ConfigError(problems)
    return root


def is_override(mark: Mark | None) -> bool:
    """Whether the place is an override of the command line."""
    return mark is not None and not mark.line and mark.file.startswith(_OVERRIDE)


# --- inheritance --------------------------------------------------------------------------------


def _read_with_bases(file: str, now: datetime, problems: list[Problem], above: tuple[str, ...]) -> Mapping:
    """The file over everything that its `_BASE` names; an unreadable file is noted and read as empty."""
    try:
        root = read_yaml(file)
    except ConfigError as error:
        problems.extend(error.problems)
        return Mapping(Mark(file), {})
    entry = root.entries.pop("_BASE", None)
    bases = _base_files(entry.node, now, problems) if entry else []
    here = (*above, os.path.realpath(file))
    merged: Mapping | None = None
    for scalar in bases:
        name = os.path.expanduser(scalar.text)  # noqa: PTH111
        base = os.path.join(os.path.dirname(file), name)  # noqa: PTH118, PTH120  # as given, for messages
        if os.path.realpath(base) in here:
            problems.append(Problem("inherits from itself", "_BASE", scalar.mark, found=scalar.text))
            continue
        if not os.path.isfile(base):  # noqa: PTH113
            absolute = os.path.abspath(base)  # noqa: PTH100
            problems.append(Problem(f"no such file: {absolute}", "_BASE", scalar.mark, found=scalar.text))
            continue
        inherited = _read_with_bases(base, now, problems, here)
        merged = inherited if merged is None else merge(merged, inherited)
    return root if merged is None else merge(merged, root)


def _base_files(node: Node, now: datetime, problems: list[Problem]) -> list[Scalar]:
    nodes = node.items if isinstance(node, Sequence) else [node]
    if isinstance(node, Scalar) and (node.is_null or node.delete):
        return []
    before = len(problems)
    files = []
    for item in nodes:
        if isinstance(item, Scalar) and item.text and not item.is_null:
            files.append(resolve_alone(item, now, problems, "_BASE"))
        else:
            problems.append(Problem("must be a file name or a list of them", "_BASE", item.mark))
    return files if len(problems) == before else []


def merge(base: Mapping, own: Mapping) -> Mapping:
    """`own` over `base`: sections merge, everything else replaces, `!delete` stays as a mark of absence.

    Where both have a NAME and the names differ, the old section's entries become stale.
    """
    if base.name is not None and own.name is not None and base.name != own.name:
        return Mapping(own.mark, own.entries, {**base.stale, **base.entries, **own.stale})
    entries = dict(base.entries)
    for key, entry in own.entries.items():
        before = entries.get(key)
        node = entry.node
        if before and isinstance(before.node, Mapping) and isinstance(node, Mapping):
            node = merge(before.node, node)
        entries[key] = Entry(entry.key_mark, node)
    return Mapping(own.mark, entries, {**base.stale, **own.stale})


def _sweep(node: Node) -> None:
    """Take out what `!delete` marks, and stale entries that stand anew or are no entries any more."""
    if isinstance(node, Sequence):
        node.items = [item for item in node.items if not (isinstance(item, Scalar) and item.delete)]
        for item in node.items:
            _sweep(item)
    elif isinstance(node, Mapping):
        deleted = {
            key for key, entry in node.entries.items() if isinstance(entry.node, Scalar) and entry.node.delete
        }
        for key in deleted:
            del node.entries[key]
        gone = (node.entries.keys() | deleted) - {
            "NAME"
        }  # the old NAME tells which of the old keys still mean the same
        node.stale = {key: entry for key, entry in node.stale.items() if key not in gone}
        for entry in (*node.entries.values(), *node.stale.values()):
            _sweep(entry.node)


# --- overrides ----------------------------------------------------------------------------------


def _override(root: Mapping, text: str, problems: list[Problem]) -> None:
    mark = Mark(f'{_OVERRIDE}{text}"')
    left, equals, right = _split(text)
    if not equals:
        problems.append(
            Problem("not an override", mark=mark, expected="KEY.KEY=VALUE", hint="the value is YAML")
        )
        return
    try:
        steps = parse_path(left.strip())
        if steps == [Key("_BASE")]:
            raise PathError("only a file can inherit")
        value = parse_yaml(right, mark.file, mark=mark)
        _assign(root, steps, value, mark)
    except PathError as error:
        problems.append(Problem(error.message, left.strip(), mark, hint=error.hint))
    except ConfigError as error:
        problems.extend(
            Problem(p.message, left.strip(), mark, p.found, p.expected, p.hint) for p in error.problems
        )


def _split(text: str) -> tuple[str, str, str]:
    """The text around its first `=` that is not in brackets."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "=" and depth <= 0:
            return text[:position], "=", text[position + 1 :]
    return text, "", ""


def _assign(root: Mapping, steps: list[Step], value: Node, mark: Mark) -> None:
    parent: Node = root
    for place, step in enumerate(steps[:-1]):
        parent = _descend(
            parent, step, steps[: place + 1], creates=isinstance(steps[place + 1], Key), mark=mark
        )
    last = steps[-1]
    if isinstance(last, Item):
        items, place = _located(parent, last, steps)
        removed = (
            isinstance(value, Scalar) and value.is_null
        )  # marked only: later overrides count the old places
        items[place] = Scalar(mark, "", True, None, delete=True) if removed else value
        return
    section = _section(parent, steps[:-1])
    if last.key == "NAME" and isinstance(value, Scalar):
        _rename(section, value)
    section.entries[last.key] = Entry(mark, value)


def _rename(section: Mapping, name: Scalar) -> None:
    """Make the keys of the old NAME stale; what overrides set is meant for the new one."""
    if section.name in (None, name.text):
        return
    old = {key: entry for key, entry in section.entries.items() if not is_override(entry.key_mark)}
    section.stale.update(old)
    for key in old:
        del section.entries[key]


def _descend(parent: Node, step: Step, steps: list[Step], *, creates: bool, mark: Mark) -> Node:
    """The node below `parent`; a section that is absent is made when a key of it comes next."""
    if isinstance(step, Item):
        items, place = _located(parent, step, steps)
        child = items[place]
        if isinstance(child, Scalar) and (child.is_null or child.delete):
            raise PathError(f"{path_text(steps)} is empty")
        return child
    section = _section(parent, steps[:-1])
    entry = section.entries.get(step.key)
    absent = entry is None or (isinstance(entry.node, Scalar) and entry.node.is_null)
    if absent and step.key in section.stale:
        entry = section.entries[step.key] = Entry(mark, copy_node(section.stale[step.key].node))
    elif absent and creates:
        entry = section.entries[step.key] = Entry(entry.key_mark if entry else mark, Mapping(mark, {}))
    if entry is None or (absent and not creates and isinstance(entry.node, Scalar)):
        raise PathError(f"{path_text(steps)} has no entries")
    return entry.node


def _section(node: Node, steps: list[Step]) -> Mapping:
    if isinstance(node, Mapping):
        return node
    kind = (
        "a list: say which entry, by [place] or [NAME]"
        if isinstance(node, Sequence)
        else "a value, not a section"
    )
    raise PathError(f"{path_text(steps)} is {kind}")


def _located(parent: Node, item: Item, steps: list[Step]) -> tuple[list[Node], int]:
    if not isinstance(parent, Sequence):
        raise PathError(f"{path_text(steps[:-1])} is not a list")
    return find_item(parent, item)
