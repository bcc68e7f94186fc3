"""`${env:NAME}`, `${now:FORMAT}` and `${SOLVER.WORK_DIR}` in the values of a configuration."""

from __future__ import annotations

import os
import re
from datetime import datetime

from scepter_core.config.nodes import (
    MAX_DEPTH,
    Mapping,
    Node,
    Scalar,
    Sequence,
    copy_node,
    measure,
    plain_value,
)
from scepter_core.config.paths import Item, PathError, Step, find_item, find_key, parse_path, path_text
from scepter_core.errors import Problem, did_you_mean

_TOKEN = re.compile(r"\$\$\{|\$\{(?P<body>[^{}]*)\}|\$\{")
_MAX_CHAIN = 50
_MAX_COPIED = 100_000
_MAX_TEXT = 1_000_000


class _Bad(Exception):
    """A reference that cannot be resolved; carries the words for its Problem."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class _Reported(Exception):
    """A reference leads to one that is broken and already noted."""


class Interpolator:
    """Resolves every reference of a tree, in place.

    Args:
        root: the tree that `${A.B}` looks into.
        now: what `${now:…}` formats.
        problems: what is wrong is added here.
    """

    def __init__(self, root: Mapping, now: datetime, problems: list[Problem]) -> None:
        self._root, self._now, self._problems = root, now, problems
        self._done: dict[int, Scalar] = {}  # by identity; holds the scalars so that no identity is used twice
        self._broken: set[int] = set()
        self._open: dict[int, str] = {}  # what is being resolved, with its path
        self._copied = 0

    def run(self) -> None:
        """Resolve everything below the root."""
        self._resolve_below(self._root, "", note=True)

    def _resolve_below(self, node: Node, path: str, *, note: bool) -> None:
        for step, child, where in _slots(node, path):
            if not isinstance(child, Scalar):
                self._resolve_below(child, where, note=note)
                continue
            try:
                self._resolve_slot(node, step, child, where)
            except _Reported:
                if not note:
                    raise

    def _resolve_slot(self, parent: Node, step: str | int, scalar: Scalar, path: str) -> Node:
        """The value of this place, without references; a problem is noted once."""
        identity = id(scalar)
        if identity in self._broken:
            raise _Reported
        if identity in self._done or "${" not in scalar.text or scalar.delete:
            return scalar
        if identity in self._open:
            chain = [*self._open.values(), path]
            raise _Bad(f"a reference that leads back to itself: {' → '.join(chain[chain.index(path) :])}")
        if len(self._open) >= _MAX_CHAIN:
            raise _Bad(f"a chain of more than {_MAX_CHAIN} references")
        self._open[identity] = path
        try:
            resolved = self._resolve(scalar)
        except (_Bad, _Reported) as error:
            self._done[identity] = scalar
            self._broken.add(identity)
            if isinstance(error, _Bad):
                problem = Problem(error.message, path, scalar.mark, found=scalar.text, hint=error.hint)
                self._problems.append(problem)
            raise _Reported from None
        finally:
            del self._open[identity]
        _put(parent, step, resolved)
        self._mark_done(resolved)
        return resolved

    def _mark_done(self, node: Node) -> None:
        if isinstance(node, Scalar):
            self._done[id(node)] = node
            return
        for _, child, _ in _slots(node, ""):
            self._mark_done(child)

    def _resolve(self, scalar: Scalar) -> Node:
        tokens = list(_TOKEN.finditer(scalar.text))
        if len(tokens) == 1 and tokens[0].group() == scalar.text and ":" not in (tokens[0]["body"] or ":"):
            target = self._target(_body(tokens[0]))
            return self._copy(target, scalar)
        parts: list[str] = []
        raw: list[str] = []
        refers = False
        position = 0
        for token in tokens:
            between = scalar.text[position : token.start()]
            value, kept = self._token(token)
            refers = refers or kept.startswith("${")
            parts += (between, value)
            raw += (between, kept)
            position = token.end()
        text = "".join(parts) + scalar.text[position:]
        if len(text) > _MAX_TEXT:
            raise _Bad("references that multiply into more text than a value can be")
        kept_text = "".join(raw) + scalar.text[position:]
        value = plain_value(text) if scalar.plain else text
        return Scalar(scalar.mark, text, scalar.plain, value, kept_text if refers else None)

    def _copy(self, target: Node, scalar: Scalar) -> Node:
        depth, count = measure(target)
        self._copied += count
        if self._copied > _MAX_COPIED or depth > MAX_DEPTH:
            raise _Bad("references that multiply into more than a configuration can be")
        copied = copy_node(target, scalar.mark)
        copied.raw = scalar.text
        return copied

    def _token(self, token: re.Match[str]) -> tuple[str, str]:
        """What a token stands for, and what the resolved configuration writes in its place."""
        if token.group() == "$${":
            return "${", "$${"
        body = _body(token)
        kind, colon, argument = body.partition(":")
        if kind == "env" and colon:
            return _environment(argument), token.group()
        if kind == "now" and colon:
            text = self._time(argument)
            return text, text.replace("${", "$${")
        if colon:
            hint = did_you_mean(kind, ("env", "now"))
            raise _Bad(
                f"unknown reference ${{{kind}:…}}: there are ${{env:NAME}}, ${{now:FORMAT}} and ${{A.B}}",
                hint,
            )
        target = self._target(body)
        if not isinstance(target, Scalar):
            raise _Bad(f"${{{body}}} is not a single value, so it cannot be part of a text")
        if target.is_null:
            raise _Bad(f"${{{body}}} is empty")
        return target.text, token.group()

    def _time(self, form: str) -> str:
        try:
            return self._now.strftime(form)
        except (ValueError, OverflowError, MemoryError) as error:
            raise _Bad(f"not a time format: {error}", "as in ${now:%Y%m%d-%H%M%S}") from None

    def _target(self, path: str) -> Node:
        """The node that `path` leads to, itself without references."""
        node: Node = self._root
        seen: list[Step] = []
        try:
            for step in parse_path(path):
                seen.append(step)
                node = self._enter(node, step, path_text(seen))
        except PathError as error:
            raise _Bad(f"{path}: {error.message}", error.hint) from None
        if not isinstance(node, Scalar):
            if len(self._open) >= _MAX_CHAIN:
                raise _Bad(f"a chain of more than {_MAX_CHAIN} references")
            self._resolve_below(node, path_text(seen), note=False)
        return node

    def _enter(self, node: Node, step: Step, path: str) -> Node:
        key: str | int
        if isinstance(step, Item):
            items, key = find_item(node, step)
            child = items[key]
        else:
            key = step.key
            child = find_key(node, step.key)
        if isinstance(child, Scalar):
            return self._resolve_slot(node, key, child, path)
        return child


def _body(token: re.Match[str]) -> str:
    body = token["body"]
    if body is None:
        raise _Bad("a reference without its closing brace", "a literal ${ is written $${")
    stripped: str = body.strip()
    if not stripped:
        raise _Bad("an empty reference", "a literal ${ is written $${")
    return stripped if ":" not in stripped else body.lstrip()


def _environment(argument: str) -> str:
    name, comma, default = argument.partition(",")
    name = name.strip()
    value = os.environ.get(name) if name and "\0" not in name and "=" not in name else None
    if value is not None:
        return value.encode("utf-8", "replace").decode("utf-8")  # bytes that are not UTF-8 come as surrogates
    if comma:
        return default
    raise _Bad(f"the environment variable {name} is not set", f"give a default: ${{env:{name},VALUE}}")


def _slots(node: Node, path: str) -> list[tuple[str | int, Node, str]]:
    if isinstance(node, Sequence):
        return [(place, item, f"{path}[{place}]") for place, item in enumerate(node.items)]
    if isinstance(node, Mapping):
        entries = {**node.stale, **node.entries}
        return [(key, entry.node, _join(path, key)) for key, entry in entries.items()]
    return []


def _join(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)


def _put(parent: Node, step: str | int, node: Node) -> None:
    if isinstance(parent, Sequence) and isinstance(step, int):
        parent.items[step] = node
    elif isinstance(parent, Mapping) and isinstance(step, str):
        (parent.entries.get(step) or parent.stale[step]).node = node


def resolve_alone(scalar: Scalar, now: datetime, problems: list[Problem], path: str) -> Scalar:
    """The scalar with `${env:…}` and `${now:…}` resolved, where no tree is there yet to look into."""
    holder = Mapping(scalar.mark, {})
    from_entries = Interpolator(holder, now, problems)
    try:
        resolved = from_entries._resolve(scalar) if "${" in scalar.text else scalar
    except _Bad as error:
        problems.append(Problem(error.message, path, scalar.mark, found=scalar.text, hint=error.hint))
        return scalar
    return resolved if isinstance(resolved, Scalar) else scalar
