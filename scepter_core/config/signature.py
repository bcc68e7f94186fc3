"""From a class or function to the model of the section that configures it."""

from __future__ import annotations

import collections.abc as abc
import copy
import functools
import inspect
import types
import typing
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Optional, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from scepter_core.config.annotations import NOTHING, accepts_null, as_number, express
from scepter_core.config.section import FreeSection, Named, Reference, Section, keys_of
from scepter_core.errors import ConfigError

Style: TypeAlias = Literal["config", "free", "keywords"]

_OWN: WeakKeyDictionary[type[BaseModel], frozenset[str]] = WeakKeyDictionary()
# What a module often imports under TYPE_CHECKING only, as torch's schedulers do with Iterable.
_FOR_TYPE_CHECKERS = {name: getattr(module, name) for module in (typing, abc) for name in module.__all__}


def style_of(obj: Any, common: type[Section] = Named) -> Style:
    """How the thing is configured and built.

    `config`: a class with a nested pydantic `Config`, built as `cls(cfg, logger=logger)`. `free`: built the same
    way, but it declares no keys and takes any, as classes written for SCEPTER. `keywords`: anything else, built
    with keyword arguments after its signature.

    Args:
        obj: the class or function.
        common: the model of the keys that every thing of the kind has. A base class whose `Config` is only
            that declares nothing for a subclass with an `__init__` of its own.
    """
    if not inspect.isclass(obj):
        return "free" if _takes_cfg(obj) else "keywords"
    overridden = False
    for base in obj.__mro__:
        config = base.__dict__.get("Config")
        if inspect.isclass(config) and issubclass(config, BaseModel):
            if not (overridden and issubclass(common, config)):
                return "config"
            return "free" if _takes_cfg(obj) else "keywords"
        overridden = overridden or "__init__" in base.__dict__
    return "free" if _takes_cfg(obj) else "keywords"


def section_model(
    obj: Any,
    *,
    common: type[Section] = Named,
    supplied: frozenset[str] = frozenset(),
    renames: abc.Mapping[str, str] = types.MappingProxyType({}),
    annotations: abc.Mapping[str, Any] = types.MappingProxyType({}),
) -> type[Section]:
    """The model of the thing's section: the keys that all of its kind have, and its own, in one.

    A thing that is built with keyword arguments may give keys of its kind other defaults, in an attribute
    `key_defaults`: `{"UNIT": "update"}`.

    Args:
        obj: the class or function that NAME names.
        common: the keys of the kind.
        supplied: parameters that the engine passes itself; they are no keys.
        renames: parameter to key, where the key is not the parameter in upper case.
        annotations: parameter to type, where the kind knows better than the signature.

    Raises:
        ConfigError: it needs something that a configuration cannot give.
    """
    return _section_model(
        obj, common, supplied, tuple(sorted(renames.items())), tuple(sorted(annotations.items()))
    )


@functools.cache
def _section_model(
    obj: Any,
    common: type[Section],
    supplied: frozenset[str],
    renames: tuple[tuple[str, str], ...],
    annotations: tuple[tuple[str, Any], ...],
) -> type[Section]:
    style = style_of(obj, common)
    name = f"{getattr(obj, '__name__', 'Thing')}Section"
    if style == "config":
        model = _joined(name, obj.Config, common)
    elif style == "free":
        model = _derived(name, (FreeSection, common), {"model_config": ConfigDict(extra="allow")})
    else:
        model = _keyword_model(name, obj, common, supplied, dict(renames), dict(annotations))
    shared = {*keys_of(common), *(key for _, key in renames)}  # what has a name of its own is the kind's too
    _OWN[model] = frozenset(key for key in keys_of(model) if key not in shared)
    if model is not getattr(obj, "Config", None):
        model.__scepter_source__ = (obj, common, supplied, renames, annotations)  # type: ignore[attr-defined]
    return model


def is_own_key(model: type[BaseModel], key: str) -> bool:
    """Whether the key is one of the thing itself and not one that all of its kind have."""
    return key in _OWN.get(model, frozenset())


def shared_keys(model: type[BaseModel], other: type[BaseModel] | None) -> frozenset[str]:
    """The model's keys that mean the same in the section of another thing of the kind.

    They are those that every thing of the kind has, and those that both have from one base class.

    Args:
        model: the model whose keys are looked at.
        other: the other thing's model, None where there is none.
    """
    keys = keys_of(model)
    shared = {key for key in keys if not is_own_key(model, key)} if model in _OWN else set()
    if other is not None:
        others = keys_of(other)
        shared |= {
            key
            for key, name in keys.items()
            if others.get(key) == name and _definer(model, name) is _definer(other, name)
        }
    return frozenset(shared)


def _definer(model: type[BaseModel], field: str) -> type:
    """The class in whose body the field stands."""
    return next((base for base in model.__mro__ if field in inspect.get_annotations(base)), model)


def _joined(name: str, config: type[BaseModel], common: type[Section]) -> type[Section]:
    if issubclass(config, common):
        config.model_rebuild(raise_errors=False)
        return config
    extra = config.model_config.get("extra")
    settings = ConfigDict(extra="allow") if extra == "allow" else ConfigDict(extra="forbid")
    return _derived(name, (config, common), {"model_config": settings})


def _derived(name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type[Section]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a key named like a method: here it may be
        made = types.new_class(name, bases, {}, lambda namespace: namespace.update(body))
    return typing.cast("type[Section]", made)


# --- keyword style ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    key: str
    annotation: Any  # of what YAML can write
    default: Any  # inspect.Parameter.empty when it is required


def _keyword_model(
    name: str,
    obj: Any,
    common: type[Section],
    supplied: frozenset[str],
    renames: dict[str, str],
    annotations: dict[str, Any],
) -> type[Section]:
    shared = keys_of(common)
    fields: dict[str, Any] = {}
    keywords: dict[str, str] = {}
    for parameter in _parameters(obj, supplied, renames, annotations):
        if parameter.key in keywords:
            continue  # a and A: one key cannot mean both
        keywords[parameter.key] = parameter.name
        required = parameter.default is inspect.Parameter.empty
        if parameter.key not in shared:
            default = Field(...) if required else _default(parameter.default, parameter.annotation)
            fields[parameter.key] = (parameter.annotation, default)
        elif required:
            fields.update(_made_required(common, shared[parameter.key]))
    for key, value in getattr(obj, "key_defaults", {}).items():
        fields.update(_with_default(common, shared[key], value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = create_model(name, __base__=common, **fields)
    model.__scepter_keywords__ = keywords  # type: ignore[attr-defined]
    return model


def _made_required(common: type[Section], field_name: str) -> dict[str, Any]:
    """The common field without its default, where that only says that there is none."""
    field = common.__pydantic_fields__[field_name]
    if field.is_required() or field.get_default() is not None:
        return {}
    return _with_default(common, field_name, PydanticUndefined)


def _with_default(common: type[Section], field_name: str, value: Any) -> dict[str, Any]:
    """The common field with another default."""
    field = copy.copy(common.__pydantic_fields__[field_name])
    field.default = value
    return {field_name: (field.annotation, field)}


def _default(value: Any, annotation: Any) -> FieldInfo:
    value = as_number(value, annotation)
    if isinstance(value, str | int | float | tuple | frozenset | None):
        return typing.cast("FieldInfo", Field(default=value))
    return typing.cast(
        "FieldInfo", Field(default_factory=lambda: value)
    )  # the very object: pydantic would copy it


def _parameters(
    obj: Any, supplied: frozenset[str], renames: dict[str, str], annotations: dict[str, Any]
) -> Iterator[_Parameter]:
    function, skip = _called(obj)
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (ValueError, TypeError):
        return  # made in C without a signature: it takes no keys
    hints = _Hints(function, obj)
    for parameter in parameters:
        if parameter.name in supplied or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        known = annotations.get(parameter.name)
        annotation = express(hints.of(parameter)) if known is None else express(known)
        key = renames.get(parameter.name, parameter.name.upper())
        unusable = annotation is NOTHING or parameter.kind is parameter.POSITIONAL_ONLY or key.startswith("_")
        if not unusable:
            if parameter.default is None and not accepts_null(annotation):
                annotation = Optional[annotation]  # noqa: UP045  # of a value, not a type known here
            yield _Parameter(parameter.name, key, annotation, parameter.default)
        elif parameter.default is inspect.Parameter.empty:
            kind = (
                "by place only"
                if parameter.kind is parameter.POSITIONAL_ONLY
                else "of a type that YAML cannot write"
            )
            raise ConfigError(
                f"{_qualified(obj)} cannot be built from a configuration: "
                f"its parameter {parameter.name} is {kind}"
            )


def _qualified(obj: Any) -> str:
    return f"{getattr(obj, '__module__', '?')}.{getattr(obj, '__qualname__', repr(obj))}"


def _called(obj: Any) -> tuple[Any, int]:
    """The function that a call of the thing ends in, and how many of its parameters the call binds itself."""
    if not inspect.isclass(obj):
        return obj, 0
    for base in obj.__mro__[:-1]:
        for name in ("__new__", "__init__"):
            function = base.__dict__.get(name)
            if function is not None:
                return inspect.unwrap(getattr(function, "__func__", function)), 1
    return (lambda: None), 0


class _Hints:
    """The annotations of a function's parameters, text resolved where its module can; Any where it cannot."""

    def __init__(self, function: Any, obj: Any) -> None:
        function = inspect.unwrap(function)
        function = function.func if isinstance(function, functools.partial) else function
        self._globals = getattr(function, "__globals__", {})
        self._locals = dict(vars(obj)) if inspect.isclass(obj) else {}

    def of(self, parameter: inspect.Parameter) -> Any:
        if parameter.annotation is inspect.Parameter.empty:
            return _type_of_default(parameter.default)
        holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
        for names in (self._globals, {**_FOR_TYPE_CHECKERS, **self._globals}):
            try:
                return typing.get_type_hints(holder, names, self._locals, include_extras=True)["it"]
            except Exception:  # an annotation may be any code; one that cannot be run says nothing
                continue
        return Any


def _type_of_default(default: Any) -> Any:
    if isinstance(default, bool):
        return bool
    if isinstance(default, int | float):
        return int | float  # `dropout=0` takes 0.1
    return str if isinstance(default, str) else Any


def _takes_cfg(obj: Any) -> bool:
    """Whether it is called as `thing(cfg, logger=None)`."""
    function, skip = _called(obj)
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (ValueError, TypeError):
        return False
    if len(parameters) < 2 or (parameters[0].name, parameters[1].name) != ("cfg", "logger"):
        return False
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not p.empty or p.kind in stars for p in parameters[1:])


def keywords(section: Section) -> dict[str, Any]:
    """The keyword arguments that build the thing: the keys that were given, and shared ones with a value.

    Raises:
        ConfigError: a `module:attribute` in it cannot be imported.
    """
    wanted: dict[str, str] = getattr(type(section), "__scepter_keywords__", {})
    arguments: dict[str, Any] = {}
    for key, parameter in wanted.items():
        value = section[key]
        field = keys_of(type(section))[key]
        shared = not is_own_key(type(section), key)
        if field in section.model_fields_set or (shared and value is not None):
            arguments[parameter] = _resolved(value)
    return arguments


def _resolved(value: Any) -> Any:
    """The value with every `module:attribute` in it imported."""
    if isinstance(value, Reference):
        return value.resolve()
    if isinstance(value, list | tuple | set | frozenset) and any(
        isinstance(item, Reference) for item in value
    ):
        return type(value)(_resolved(item) for item in value)
    if isinstance(value, dict):
        return {key: _resolved(item) for key, item in value.items()}
    return value
