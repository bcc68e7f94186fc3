"""YAML text to nodes: PyYAML parses, the meaning of scalars is that of YAML 1.2."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml import events

from scepter_core.config.nodes import (
    MAX_DEPTH,
    Entry,
    Mapping,
    Node,
    Scalar,
    Sequence,
    copy_node,
    measure,
    plain_value,
)
from scepter_core.errors import ConfigError, Mark, Problem

MAX_BYTES = 16 * 1024 * 1024
MAX_ALIASED = 100_000
"""How many nodes aliases may add to a file: more is an explosion, not a configuration."""

_CORE_TAGS = {
    "tag:yaml.org,2002:" + name: name for name in ("str", "int", "float", "bool", "null", "map", "seq")
}
_TAG_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}


def read_yaml(path: str | Path) -> Mapping:
    """The file's tree.

    Raises:
        ConfigError: the file is missing, not UTF-8, not YAML, empty, or no mapping; with every problem found.
    """
    file = str(path)
    root = parse_yaml(_read_text(file), file)
    if isinstance(root, Mapping):
        return root
    if isinstance(root, Scalar) and root.is_empty:
        raise ConfigError(
            [Problem("the file is empty", mark=Mark(file, 1, 1), expected="ENV, SOLVER and their keys")]
        )
    kind = "a list" if isinstance(root, Sequence) else "a single value"
    problem = Problem(
        "the file must hold keys and values", mark=root.mark, found=kind, expected="KEY: value lines"
    )
    raise ConfigError([problem])


def _read_text(file: str) -> str:
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = f"the current folder is {Path.cwd()}" if not Path(file).is_absolute() else None
        raise ConfigError([Problem("no such file", mark=Mark(file), hint=hint)]) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError([Problem(f"cannot be read: {reason}", mark=Mark(file))]) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(
            [Problem(f"larger than {MAX_BYTES >> 20} MiB: not a configuration", mark=Mark(file))]
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        mark = _mark_at(file, before, len(before))
        found = f"the byte 0x{data[error.start]:02x}"
        raise ConfigError(
            [Problem("not UTF-8 text", mark=mark, found=found, hint="save the file as UTF-8")]
        ) from None


def parse_yaml(text: str, file: str, *, mark: Mark | None = None) -> Node:
    """The tree of one YAML document; of nothing, an empty scalar.

    Args:
        text: the document.
        file: its name, for marks.
        mark: put everything at this one place, as for the value of an override.

    Raises:
        ConfigError: with every problem found.
    """
    return _Composer(text, file, mark).compose()


class _Composer:
    """Builds the tree from PyYAML's events, which come without recursion and without a meaning."""

    def __init__(self, text: str, file: str, mark: Mark | None) -> None:
        self._text, self._file, self._fixed = text, file, mark
        self._problems: list[Problem] = []
        self._anchors: dict[str, Node | None] = {}
        self._aliased = 0

    def compose(self) -> Node:
        root: Node = Scalar(self._fixed or Mark(self._file, 1, 1), "", plain=True, value=None)
        try:
            self._loader = yaml.SafeLoader(self._text)
            root = self._document() or root
        except yaml.reader.ReaderError as error:
            self._problems.append(self._unprintable(error))
        except yaml.MarkedYAMLError as error:
            self._problems.append(self._syntax(error))
        except (ValueError, OverflowError, yaml.YAMLError) as error:
            # PyYAML lets some conversions fail as they are: "\Uffffffff", %YAML 1.99…9
            self._problem(f"not valid YAML: {error}", self._loader.get_mark())
        except _GivenUp:
            pass
        if self._problems:
            raise ConfigError(self._problems)
        return root

    def _document(self) -> Node | None:
        root = None
        while True:
            event = self._next()
            if isinstance(event, events.StreamEndEvent):
                return root
            if isinstance(event, events.DocumentStartEvent):
                if root is not None:
                    self._problem("a second document starts here: a configuration is one", event.start_mark)
                    return root
                root = self._node(self._next(), 0)

    def _next(self) -> Any:
        return self._loader.get_event()  # type: ignore[no-untyped-call]

    def _mark(self, mark: Any) -> Mark:
        return self._fixed or Mark(self._file, mark.line + 1, mark.column + 1)

    def _problem(self, message: str, mark: Any, *, found: str | None = None, hint: str | None = None) -> None:
        self._problems.append(Problem(message, mark=self._mark(mark), found=found, hint=hint))

    def _node(self, event: Any, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self._problem(f"nested more than {MAX_DEPTH} levels deep", event.start_mark)
            raise _GivenUp
        if isinstance(event, events.AliasEvent):
            return self._alias(event, depth)
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None  # open: an alias inside would hold itself
        if isinstance(event, events.ScalarEvent):
            node: Node = self._scalar(event)
        elif isinstance(event, events.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _alias(self, event: Any, depth: int) -> Node:
        target = self._anchors.get(event.anchor)
        if target is None:
            known = event.anchor in self._anchors
            self._problem(
                f"*{event.anchor} refers to itself"
                if known
                else f"*{event.anchor} has no anchor &{event.anchor} before it",
                event.start_mark,
            )
            return Scalar(self._mark(event.start_mark), "", plain=True, value=None)
        below, count = measure(target)
        self._aliased += count
        if self._aliased > MAX_ALIASED or depth + below > MAX_DEPTH:
            self._problem("aliases that multiply into more than a configuration can be", event.start_mark)
            raise _GivenUp
        return copy_node(target)

    def _scalar(self, event: Any) -> Scalar:
        mark, text, tag = self._mark(event.start_mark), event.value, event.tag
        if re.search("[\ud800-\udfff]", text):
            self._problem("not a character: half of a surrogate pair", event.start_mark)
        plain = event.style is None or event.style == ""
        if tag == "!delete":
            return Scalar(mark, text, plain=True, value=None, delete=True)
        if tag is None:
            return Scalar(mark, text, plain, plain_value(text) if plain else text)
        if tag in ("!", "tag:yaml.org,2002:str"):
            return Scalar(mark, text, plain=False, value=text)
        wanted = _TAG_TYPES.get(_CORE_TAGS.get(tag, ""))
        value: Any = plain_value(text)
        if wanted is None:
            self._problem(
                f"unknown tag {_tag_text(tag)}", event.start_mark, hint="only !delete means something here"
            )
        elif not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            self._problem(f"not a value of its tag {_tag_text(tag)}", event.start_mark, found=text)
        elif float in wanted:
            value = plain_value(text + ".") if isinstance(value, int) else value
        return Scalar(mark, text, plain=True, value=value)

    def _check_tag(self, event: Any, name: str) -> None:
        if event.tag not in (None, "!") and _CORE_TAGS.get(event.tag) != name:
            self._problem(f"unknown tag {_tag_text(event.tag)}", event.start_mark)

    def _sequence(self, start: Any, depth: int) -> Sequence:
        self._check_tag(start, "seq")
        sequence = Sequence(self._mark(start.start_mark), [])
        while not isinstance(event := self._next(), events.SequenceEndEvent):
            item = self._node(event, depth + 1)
            if isinstance(item, Scalar) and item.delete:
                self._problem("!delete removes a key, not an entry of a list", event.start_mark)
            sequence.items.append(item)
        return sequence

    def _mapping(self, start: Any, depth: int) -> Mapping:
        self._check_tag(start, "map")
        own: dict[str, Entry] = {}
        merged: list[Mapping] = []
        merge_mark: Mark | None = None
        while not isinstance(event := self._next(), events.MappingEndEvent):
            key, plain = self._key(event, depth)
            value = self._node(self._next(), depth + 1)
            mark = self._mark(event.start_mark)
            if key == "<<" and plain:
                if merge_mark:
                    self._duplicate(key, merge_mark, mark, "merge several with <<: [*a, *b]")
                merge_mark = mark
                merged.extend(self._merged(value))
            elif key is None:
                continue
            elif key in own:
                self._duplicate(key, own[key].key_mark, mark)
            else:
                own[key] = Entry(mark, value)
        return Mapping(self._mark(start.start_mark), self._join(merged, own))

    @staticmethod
    def _join(merged: list[Mapping], own: dict[str, Entry]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for mapping in reversed(merged):  # the first of several wins
            entries.update(mapping.entries)
        entries.update(own)
        return entries

    def _key(self, event: Any, depth: int) -> tuple[str | None, bool]:
        node = self._node(event, depth + 1)
        if not isinstance(node, Scalar):
            self._problem("a key must be a word", event.start_mark, found=_kind(node))
            return None, False
        if node.is_empty:
            self._problem("a value without a key", event.start_mark)
            return None, False
        return node.text, node.plain

    def _merged(self, node: Node) -> list[Mapping]:
        nodes = node.items if isinstance(node, Sequence) else [node]
        good = [item for item in nodes if isinstance(item, Mapping)]
        if len(good) < len(nodes):
            self._problems.append(Problem("<< merges a section or a list of sections", mark=node.mark))
        return good

    def _duplicate(self, key: str, first: Mark | None, second: Mark, hint: str | None = None) -> None:
        lines = f" (lines {first.line} and {second.line})" if first and first.line else ""
        found = f"first at {first}, again at {second}"
        self._problems.append(
            Problem(f"the key {key} stands here twice{lines}", mark=second, found=found, hint=hint)
        )

    def _unprintable(self, error: yaml.reader.ReaderError) -> Problem:
        character = error.character if isinstance(error.character, int) else ord(error.character[:1] or "\0")
        mark = self._fixed or _mark_at(self._file, self._text, error.position)
        return Problem(f"the character U+{character:04X} may not stand in YAML", mark=mark)

    def _syntax(self, error: yaml.MarkedYAMLError) -> Problem:
        where: Any = error.problem_mark or error.context_mark
        mark = self._mark(where) if where else self._fixed or Mark(self._file)
        lines = self._text.splitlines()
        line = lines[where.line] if where and where.line < len(lines) else ""
        if "\t" in line[: len(line) - len(line.lstrip())]:
            return Problem("a tab cannot indent YAML", mark=mark, hint="use spaces")
        context = f" ({error.context})" if error.context else ""
        hint = "put quotes around a value that holds ': '" if "mapping values" in str(error.problem) else None
        return Problem(
            f"not valid YAML: {error.problem}{context}", mark=mark, found=line.strip() or None, hint=hint
        )


class _GivenUp(Exception):
    """The rest of the text is not worth reading; the problem is noted."""


def _mark_at(file: str, text: str, position: int) -> Mark:
    before = text[:position]
    return Mark(file, before.count("\n") + 1, position - before.rfind("\n"))


def _tag_text(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _kind(node: Node) -> str:
    return "a list" if isinstance(node, Sequence) else "a section"
