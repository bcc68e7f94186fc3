"""What a type annotation says about a value in YAML: its members, its words, what of it YAML can write."""

from __future__ import annotations

import collections
import collections.abc as abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import os
import pathlib
import re
import types
import typing
import uuid
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin

import typing_extensions
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scepter_core.config.section import NamedThing

LISTS: tuple[Any, ...] = (
    list,
    abc.Sequence,
    abc.MutableSequence,
    abc.Iterable,
    abc.Collection,
    collections.deque,
)
SETS: tuple[Any, ...] = (set, frozenset, abc.Set, abc.MutableSet)
MAPPINGS: tuple[Any, ...] = (
    dict,
    abc.Mapping,
    abc.MutableMapping,
    collections.OrderedDict,
    collections.defaultdict,
    collections.Counter,
)
TEXTS: tuple[type, ...] = (
    str,
    bytes,
    pathlib.PurePath,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    complex,
    re.Pattern,
)
_WORDS: dict[Any, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    bytes: "a string",
    type(None): "null",
    None: "null",
}


def unwrap(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The annotation without aliases and `Annotated`, and the metadata that was on it."""
    metadata: tuple[Any, ...] = ()
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            metadata = (*annotation.__metadata__, *metadata)
            annotation = annotation.__origin__
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeVar):
            annotation = annotation.__bound__ or Any
        elif isinstance(annotation, typing_extensions.TypeAliasType):
            annotation = annotation.__value__
        elif origin in (typing.Final, typing.ClassVar, typing.Required, typing.NotRequired):
            annotation = get_args(annotation)[0]
        else:
            return annotation, metadata


def members(annotation: Any) -> list[Any]:
    """The members of a union, `Literal` and `Annotated` kept whole; of anything else, itself."""
    bare, metadata = unwrap(annotation)
    if get_origin(bare) in (Union, types.UnionType):
        return [inner for member in get_args(bare) for inner in members(member)]
    return [Annotated[bare, *metadata] if metadata else bare]


def is_class(annotation: Any, *classes: type) -> bool:
    """Whether the bare annotation is a class below one of `classes`."""
    return isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, classes)


def is_callable(annotation: Any) -> bool:
    """Whether it asks for a function or a class itself, which YAML names as `module:attribute`."""
    return annotation in (typing.Callable, abc.Callable, type) or get_origin(annotation) in (
        abc.Callable,
        type,
    )


def accepts_null(annotation: Any) -> bool:
    """Whether null is one of its values."""
    bare = [unwrap(member)[0] for member in members(annotation)]
    return any(
        member in (None, type(None), Any, object)
        or (get_origin(member) is Literal and None in get_args(member))
        for member in bare
    )


def describe(annotation: Any, metadata: abc.Iterable[Any] = ()) -> str:
    """The annotation in plain words, its bounds included: `an integer >= 1`, `a list of strings or null`."""
    described = list(dict.fromkeys(_describe_member(member) for member in members(annotation)))
    if "null" in described:  # last, whatever the order of the annotation
        described = [word for word in described if word != "null"] + ["null"]
    whole = {unwrap(member)[0] for member in members(annotation)} <= {int, type(None), None}
    text = " or ".join(described)
    metadata = tuple(metadata)
    if any(isinstance(mark, NamedThing) for mark in metadata):
        text = text.replace("a section", "a section with a NAME").replace("sections", "sections with a NAME")
    return text + bounds(metadata, whole=whole)


def demand(annotation: Any) -> str:
    """What a value must be, without its bounds and without the null that only stands for leaving it out."""
    choices = [unwrap(member)[0] for member in members(annotation)]
    real = [choice for choice in choices if choice not in (None, type(None))]
    return f"must be {' or '.join(dict.fromkeys(_describe_member(choice) for choice in real or choices))}"


def _describe_member(annotation: Any) -> str:
    bare, metadata = unwrap(annotation)
    origin, arguments = get_origin(bare), get_args(bare)
    limits = bounds(metadata, whole=bare is int)
    if bare in _WORDS:
        return _WORDS[bare] + limits
    if origin is Literal:
        distinct = {str(value): value for value in reversed(arguments)}  # of 32 and "32" the first
        values = [_literal(value) for value in reversed(distinct.values())]
        return f"one of {', '.join(values)}" if len(values) > 1 else values[0]
    if is_class(bare, enum.Enum):
        return f"one of {', '.join(enum_words(bare))}"
    if is_callable(bare):
        return "the name of a function or class as module:attribute"
    if is_class(bare, BaseModel) or dataclasses.is_dataclass(bare):
        named = any(isinstance(mark, NamedThing) for mark in metadata)
        return "a section with a NAME" if named else "a section"
    container = origin or bare
    if container in MAPPINGS or typing_extensions.is_typeddict(container):
        return "a mapping" + limits
    if container is tuple and arguments and Ellipsis not in arguments:
        return f"a list of {len(arguments)} values"
    if container in LISTS or container in SETS or container is tuple:
        inner = f" of {_plural(arguments[0])}" if arguments and arguments[0] not in (Any, ()) else ""
        return f"a list{inner}{limits}"
    if bare in (Any, object):
        return "a value"
    if is_class(bare, os.PathLike):
        return "a path"
    return f"a {getattr(bare, '__name__', str(bare)).lower()}{limits}"


def _plural(annotation: Any) -> str:
    words = describe(annotation)
    plurals = {
        "a boolean": "booleans",
        "an integer": "integers",
        "a number": "numbers",
        "a string": "strings",
        "a section": "sections",
        "a section with a NAME": "sections with a NAME",
        "a path": "paths",
    }
    return plurals.get(words, f"values, each {words}")


def _literal(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return repr(value.value if isinstance(value, enum.Enum) else value)


def enum_words(enumeration: Any) -> list[str]:
    """What YAML writes for the members of an enumeration: the value, else the name."""
    return [
        repr(member.value) if isinstance(member.value, str | int | float) else repr(name)
        for name, member in enumeration.__members__.items()
    ]


def number_text(value: Any) -> str:
    """A bound as a person writes it: `0` for 0.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def bounds(metadata: abc.Iterable[Any], *, whole: bool = False) -> str:
    """The constraints among an annotation's metadata in words, with a space before: ` >= 1`, or nothing.

    Args:
        metadata: the constraints.
        whole: they limit integers, so that `> 0` is better said as `>= 1`.
    """
    flat: list[Any] = []
    for constraint in metadata:
        flat.extend(constraint.metadata if isinstance(constraint, FieldInfo) else [constraint])
    signs = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="), ("multiple_of", "a multiple of"))
    words: list[str] = []
    for constraint in flat:
        limits = [(name, sign, getattr(constraint, name, None)) for name, sign in signs]
        words.extend(
            limit_text(name, sign, limit, whole) for name, sign, limit in limits if limit is not None
        )
        least, most = getattr(constraint, "min_length", None), getattr(constraint, "max_length", None)
        if least:
            words.append("not empty" if least == 1 else f"at least {least} long")
        if most is not None:
            words.append(f"at most {most} long")
        if getattr(constraint, "pattern", None):
            words.append(f"matching {getattr(constraint.pattern, 'pattern', constraint.pattern)}")
        if getattr(constraint, "allow_inf_nan", None) is False:
            words.append("finite")
    return (" " + " and ".join(dict.fromkeys(words))) if words else ""


def limit_text(name: str, sign: str, limit: Any, whole: bool) -> str:
    """One bound in words: `>= 1` for a `gt` of 0 among whole numbers."""
    if whole and isinstance(limit, int) and name in ("gt", "lt"):
        return f">= {limit + 1}" if name == "gt" else f"<= {limit - 1}"
    return f"{sign} {number_text(limit)}"


def as_number(value: Any, annotation: Any) -> Any:
    """A default of `1` for a float as the float that it is read back as; anything else as it is."""
    choices = [unwrap(member)[0] for member in members(annotation)]
    return float(value) if type(value) is int and float in choices and int not in choices else value


NOTHING = object()
"""Stands for a type that YAML cannot write."""


def express(annotation: Any) -> Any:
    """The part of the annotation that YAML can write, or NOTHING: tensors, modules and the like drop out."""
    bare, metadata = unwrap(annotation)
    expressed = _express(bare)
    if expressed is NOTHING or not metadata:
        return expressed
    return Annotated[expressed, *metadata]


def _express(bare: Any) -> Any:
    origin, arguments = get_origin(bare), get_args(bare)
    if bare in (Any, object):
        return Any
    if bare in (None, type(None)) or origin is Literal:
        return bare
    if origin in (Union, types.UnionType):
        able = [part for part in map(express, arguments) if part is not NOTHING]
        only_null = all(part in (None, type(None)) for part in able)
        return NOTHING if only_null else Union[tuple(able)]  # noqa: UP007  # of a tuple
    if is_callable(bare):
        return typing.Callable[..., Any]
    container = origin or bare
    if container is tuple:
        return _express_generic(tuple, arguments, (Any, ...))
    if container in SETS:
        return _express_generic(set if container in (set, abc.MutableSet) else frozenset, arguments, (Any,))
    if container in MAPPINGS:
        return _express_generic(dict, arguments if len(arguments) == 2 else (), (str, Any))
    if container in LISTS:
        return _express_generic(
            collections.deque if container is collections.deque else list, arguments, (Any,)
        )
    return bare if _is_writable(bare) else NOTHING


def _express_generic(container: Any, arguments: tuple[Any, ...], default: tuple[Any, ...]) -> Any:
    able = tuple(part if part is Ellipsis else express(part) for part in arguments or default)
    return NOTHING if any(part is NOTHING for part in able) else container[able]


def _is_writable(bare: Any) -> bool:
    if typing_extensions.is_typeddict(bare) or dataclasses.is_dataclass(bare) or bare in (bool, int, float):
        return True
    if is_class(bare, enum.Enum, BaseModel, *TEXTS) or bare is os.PathLike or get_origin(bare) is os.PathLike:
        return True
    return hasattr(bare, "__get_pydantic_core_schema__")
