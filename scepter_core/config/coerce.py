"""Nodes to values, guided by annotations: strict where YAML has the type, helpful where it has not."""

from __future__ import annotations

import collections
import dataclasses
import enum
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from scepter_core.config.annotations import (
    LISTS,
    MAPPINGS,
    SETS,
    accepts_null,
    demand,
    describe,
    is_callable,
    is_class,
    members,
    unwrap,
)
from scepter_core.config.nodes import (
    Entry,
    Mapping,
    Node,
    Scalar,
    Sequence,
    plain_value,
    source_text,
    to_python,
)
from scepter_core.config.scalars import MISMATCH, SCALARS, scalar_value, union_value
from scepter_core.config.section import NamedThing, Reference
from scepter_core.errors import ConfigError, Problem, did_you_mean

INVALID: Any = object()
"""What a coercion returns when it has noted a problem instead of a value."""


MakeSection = Callable[[Node, type[BaseModel], str, NamedThing | None], Any]


class Coercer:
    """Turns nodes into values of annotated types.

    Args:
        section: makes the value of a node whose annotation is a model; returns INVALID after noting problems.
        problems: what is wrong is added here.
    """

    def __init__(self, section: MakeSection, problems: list[Problem]) -> None:
        self._section, self._problems = section, problems

    def coerce(
        self,
        node: Node,
        annotation: Any,
        path: str,
        metadata: Iterable[Any] = (),
        thing: NamedThing | None = None,
    ) -> Any:
        """The node's value as the annotation wants it, or INVALID.

        Args:
            node: the value as written.
            annotation: its type.
            path: its YAML path.
            metadata: constraints of the field, for messages.
            thing: the kind of thing that sections in it name.
        """
        metadata = tuple(metadata)
        bare, inner = unwrap(annotation)
        thing = next((mark for mark in (*inner, *metadata) if isinstance(mark, NamedThing)), thing)
        if thing is not None and thing.short and isinstance(node, Scalar) and isinstance(node.value, str):
            node = Mapping(node.mark, {"NAME": Entry(node.mark, node)})
        choices = members(annotation)
        if len(choices) > 1:
            return self._union(node, annotation, choices, path, metadata, thing)
        if bare in (Any, object):
            return to_python(node)
        if is_class(bare, BaseModel):
            return self._section(node, bare, path, thing)
        if isinstance(node, Scalar):
            value = scalar_value(node, bare)
        else:
            value = self._container(node, bare, path, thing)
        return self._checked(value, node, annotation, path, metadata)

    def _checked(self, value: Any, node: Node, annotation: Any, path: str, metadata: tuple[Any, ...]) -> Any:
        """The value, unless it is none of the type, or names what cannot be imported."""
        if value is MISMATCH:
            return self.mismatch(node, annotation, path, metadata)
        if isinstance(value, Reference):
            try:
                value.resolve()
            except ConfigError as error:
                self._problems += [Problem(one.message, path, node.mark, source_text(node)) for one in error.problems]
                return INVALID
        return value

    def mismatch(self, node: Node, annotation: Any, path: str, metadata: Iterable[Any] = ()) -> Any:
        """Note that the node is not of its type; returns INVALID."""
        exact = describe(annotation, metadata)
        hint = None
        if isinstance(node, Scalar) and not node.plain:
            unquoted = Scalar(node.mark, node.text, True, plain_value(node.text))
            choices = [unwrap(member)[0] for member in members(annotation)]
            if union_value(unquoted, choices) is not MISMATCH:
                hint = "quotes make it a string: leave them out"
        self._problems.append(Problem(demand(annotation), path, node.mark, source_text(node), exact, hint))
        return INVALID

    # --- unions ----------------------------------------------------------------------------------

    def _union(
        self,
        node: Node,
        annotation: Any,
        choices: list[Any],
        path: str,
        metadata: tuple[Any, ...],
        thing: NamedThing | None,
    ) -> Any:
        bare = [unwrap(choice)[0] for choice in choices]
        if isinstance(node, Scalar):
            return self._checked(union_value(node, bare), node, annotation, path, metadata)
        if any(choice in (Any, object) for choice in bare):
            return to_python(node)
        fitting = [choice for choice, base in zip(choices, bare, strict=True) if _takes(base, node)]
        if len(fitting) == 1:
            return self.coerce(node, fitting[0], path, metadata, thing)
        for choice in fitting:
            trial = Coercer(self._section, [])
            value = trial.coerce(node, choice, path, (), thing)
            if value is not INVALID and not trial._problems:
                return value
        return self.mismatch(node, annotation, path, metadata)

    # --- containers ------------------------------------------------------------------------------

    def _container(self, node: Mapping | Sequence, bare: Any, path: str, thing: NamedThing | None) -> Any:
        if not _takes(bare, node):
            return MISMATCH
        container, arguments = get_origin(bare) or bare, get_args(bare)
        if isinstance(node, Mapping):
            if container in MAPPINGS:
                return self._mapping(node, arguments, path, thing)
            return self._fields(node, container, path) if dataclasses.is_dataclass(container) else to_python(node)
        if container is tuple and arguments and Ellipsis not in arguments:
            return self._fixed(node, arguments, path, thing)
        if container is tuple or container in LISTS or container in SETS:
            inner = arguments[0] if arguments else Any
            values = [
                self.coerce(item, inner, f"{path}[{n}]", (), thing) for n, item in enumerate(node.items)
            ]
            return _collect(container, values)
        return to_python(node)

    def _fields(self, node: Mapping, cls: Any, path: str) -> Any:
        """The values of a dataclass's fields, by their names; the keys are these in upper case."""
        fields = {field.name.upper(): field for field in dataclasses.fields(cls) if field.init}
        types, before = _types_of(cls), len(self._problems)
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            if key not in fields:
                details = source_text(entry.node), f"one of {', '.join(fields)}", did_you_mean(key, fields)
                self._problems.append(Problem("unknown key", f"{path}.{key}", entry.key_mark, *details))
                continue
            wanted = types[fields[key].name]
            if not isinstance(entry.node, Scalar) or not entry.node.is_null or wants_null(entry.node, wanted):
                values[fields[key].name] = self.coerce(entry.node, wanted, f"{path}.{key}")
        for key, field in fields.items():
            if field.name not in values and field.default is field.default_factory is dataclasses.MISSING:
                expected = describe(types[field.name])
                self._problems.append(Problem("required key is missing", f"{path}.{key}", node.mark, None, expected))
        return values if len(self._problems) == before else INVALID

    def _mapping(self, node: Mapping, arguments: tuple[Any, ...], path: str, thing: NamedThing | None) -> Any:
        key_type, value_type = arguments if len(arguments) == 2 else (str, Any)
        values: dict[Any, Any] = {}
        valid = True
        for text, entry in node.entries.items():
            key = text
            if unwrap(key_type)[0] not in (str, Any, object):
                key = self.coerce(
                    Scalar(entry.key_mark, text, True, plain_value(text)), key_type, f"{path}.{text}"
                )
            value = self.coerce(entry.node, value_type, f"{path}.{text}", (), thing)
            valid = valid and key is not INVALID and value is not INVALID
            if valid:
                values[key] = value
        return values if valid else INVALID

    def _fixed(self, node: Sequence, arguments: tuple[Any, ...], path: str, thing: NamedThing | None) -> Any:
        if arguments == ((),):
            arguments = ()
        if len(node.items) != len(arguments):
            return MISMATCH
        pairs = enumerate(zip(node.items, arguments, strict=True))
        return _collect(
            tuple, [self.coerce(item, inner, f"{path}[{n}]", (), thing) for n, (item, inner) in pairs]
        )


# --- helpers ------------------------------------------------------------------------------------


def _takes(bare: Any, node: Mapping | Sequence) -> bool:
    """Whether values of the annotation are written as such a node."""
    container = get_origin(bare) or bare
    if bare in SCALARS or container is Literal or is_callable(bare) or is_class(bare, enum.Enum, str, bytes):
        return False
    is_listed = container in (*LISTS, *SETS, tuple)
    is_mapped = container in MAPPINGS or is_class(bare, BaseModel) or dataclasses.is_dataclass(container)
    return not is_listed if isinstance(node, Mapping) else not is_mapped


def _types_of(cls: Any) -> dict[str, Any]:
    """The types of a dataclass's fields; Any where an annotation's text means nothing here."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # an annotation may be any code
        return {field.name: Any for field in dataclasses.fields(cls)}


def _collect(container: Any, values: list[Any]) -> Any:
    if any(value is INVALID for value in values):
        return INVALID
    if container in SETS:
        try:
            return frozenset(values) if container is frozenset else set(values)
        except TypeError:
            return MISMATCH  # lists and mappings are no members of a set
    if container is tuple:
        return tuple(values)
    return collections.deque(values) if container is collections.deque else values


def wants_null(node: Node, annotation: Any) -> bool:
    """Whether a written null is the value, and not only another way to ask for the default."""
    return isinstance(node, Scalar) and node.is_null and not node.is_empty and accepts_null(annotation)
