"""Sections: what a validated part of a configuration is to the code that it configures."""

from __future__ import annotations

from collections.abc import Container, ItemsView, Iterator, KeysView
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, PrivateAttr

from scepter_core.errors import ConfigError, Problem, did_you_mean


class UnknownName(LookupError):
    """A NAME that nothing is registered under.

    Attributes:
        message: what to tell the user.
        hint: what to do, or None.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class MissingKey(AttributeError):
    """Code reads a key that its section does not have.

    Attributes:
        section: the section.
        key: the key.
        hint: a key that it has and that may be meant, or None.
    """

    def __init__(self, section: Section, key: str) -> None:
        self.section, self.key = section, key
        self.hint = did_you_mean(key, section._values())
        super().__init__(f"the section has no key {key}" + (f"; {self.hint}" if self.hint else ""))


@dataclass(frozen=True, slots=True)
class NamedThing:
    """Marks a field whose section, or list of sections, is that of a registered thing named by its NAME.

    `model: Annotated[Section | None, NamedThing("models")] = None`

    Attributes:
        kind: what kind of thing: where its NAME is looked up.
        short: a NAME alone may stand for the section.
    """

    kind: str
    short: bool = False


class Reference(str):
    """`module:attribute`: a function or class that a configuration names, imported when it is called."""

    def resolve(self) -> Any:
        """The object itself.

        Raises:
            ConfigError: it cannot be imported.
        """
        module, _, attribute = self.partition(":")
        try:
            found: Any = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (
            Exception
        ) as error:  # importing runs foreign code, which may fail in any way; the cause goes along
            raise ConfigError([Problem(f"cannot import {self}: {type(error).__name__}: {error}")]) from error
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.resolve()(*args, **kwargs)


_KEYS: WeakKeyDictionary[type[BaseModel], dict[str, str]] = WeakKeyDictionary()


def keys_of(model: type[BaseModel]) -> dict[str, str]:
    """The model's keys as YAML writes them, each with its field: the alias, else the name in upper case."""
    if model not in _KEYS:
        _KEYS[model] = {
            (field.alias or name.upper()): name
            for name, field in getattr(model, "__pydantic_fields__", {}).items()
        }
    return _KEYS[model]


class Section(BaseModel):
    """Base of every model of a section. Its keys are its fields' names in upper case.

    Beside the fields themselves it answers as the configurations of SCEPTER do: `cfg.WARN_ABOVE`,
    `cfg.get("WARN_ABOVE", default)`, `cfg.have("WARN_ABOVE")`, `cfg["WARN_ABOVE"]`, `"WARN_ABOVE" in cfg`.

    Attributes:
        taken_with_notice: keys that other systems have, which are known here and do nothing, each with why. One that
            is written is no error; it is left out of the section, and said once at the start of the run.
        holds_secrets: whether keys with names such as SECRET and TOKEN are masked where the section is written.
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, populate_by_name=True, protected_namespaces=()
    )
    taken_with_notice: ClassVar[AbstractMapping[str, str]] = MappingProxyType({})
    holds_secrets: ClassVar[bool] = False

    _taken: dict[str, str] = PrivateAttr(default_factory=dict)  # why, by path: what was written of taken_with_notice
    _root: Any = PrivateAttr(default=None)  # the RunConfig that the section is part of
    _node: Any = PrivateAttr(default=None)  # the tree that it was made from
    _path: str = PrivateAttr(default="")  # its place in that: SOLVER.TRAIN_HOOKS[0]

    @classmethod
    def model_for(cls, keys: Container[str]) -> type[Section]:
        """The model of a section with these keys: this one, unless it stands for several."""
        return cls

    def get(self, key: str, default: Any = None) -> Any:
        """The key's value; `default` where the section has no such key."""
        found = self._lookup(key)
        return default if found is _ABSENT else found

    def have(self, key: str) -> bool:
        """Whether the section has the key, with a value that is not null."""
        found = self._lookup(key)
        return found is not _ABSENT and found is not None

    def _lookup(self, key: str) -> Any:
        field = keys_of(type(self)).get(key)
        if field is not None:
            return self.__dict__.get(field)
        return (self.__pydantic_extra__ or {}).get(key, _ABSENT)

    def _values(self) -> dict[str, Any]:
        fields = {key: self.__dict__.get(field) for key, field in keys_of(type(self)).items()}
        return fields | (self.__pydantic_extra__ or {})

    def __getitem__(self, key: str) -> Any:
        found = self._lookup(key)
        if found is _ABSENT:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._lookup(key) is not _ABSENT

    def __getattr__(self, name: str) -> Any:
        field = keys_of(type(self)).get(name)
        if field is not None and field in self.__dict__:
            return self.__dict__[field]
        try:
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic hides it from type checkers
        except AttributeError:
            if not name.isupper():
                raise
            raise MissingKey(self, name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(keys_of(type(self)).get(name, name), value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]  # a section can be changed

    def __reduce__(self) -> Any:
        """Pickle by the thing that the model was made for: the model itself exists in no module."""
        source = type(self).__dict__.get("__scepter_source__")
        maker = _rebuild if source else _blank
        return maker, (source or (type(self),)), _state(self)


_ABSENT = object()


def _state(section: Section) -> dict[str, Any]:
    state = section.__getstate__()
    private = dict(state.get("__pydantic_private__") or {})
    return {**state, "__pydantic_private__": {**private, "_root": None, "_node": None}}


def _blank(model: type[Section]) -> Section:
    return model.__new__(model)


def _rebuild(*source: Any) -> Section:
    from scepter_core.config.signature import section_model

    thing, common, supplied, renames, annotations = source
    model = section_model(
        thing, common=common, supplied=supplied, renames=dict(renames), annotations=dict(annotations)
    )
    return _blank(model)


def sections(value: Any) -> Iterator[Section]:
    """The section and all below it, in lists, dicts and other models too."""
    if isinstance(value, Section):
        yield value
    if isinstance(value, BaseModel):
        below = [*value.__dict__.values(), *(value.model_extra or {}).values()]
    elif isinstance(value, dict):
        below = list(value.values())
    else:
        below = list(value) if isinstance(value, list | tuple) else []
    for item in below:
        yield from sections(item)


def notices(section: Section) -> Iterator[str]:
    """What to say at the start of a run of the keys in the section, and below it, that are taken and do nothing."""
    for each in sections(section):
        for path, why in each._taken.items():
            yield f"{path} is taken and does nothing: {why}"


class Named(Section):
    """A section of something that is built: NAME says what."""

    name: str


class FreeSection(Section):
    """A section whose keys nobody declared, as code written for SCEPTER reads them.

    Sections inside are free too. A key with nothing behind it is None as an attribute, while `get` gives its
    default and `have` says no.
    """

    model_config = ConfigDict(extra="allow")

    _empty: set[str] = PrivateAttr(default_factory=set)

    def get(self, key: str, default: Any = None) -> Any:
        """The key's value; `default` where the section has no such key, or nothing behind it."""
        field = keys_of(type(self)).get(key)
        if key in self._empty or (field is not None and field not in self.model_fields_set):
            return default
        return super().get(key, default)

    def keys(self) -> KeysView[str]:
        """The keys, declared ones first."""
        return self._values().keys()

    def items(self) -> ItemsView[str, Any]:
        """The keys with their values."""
        return self._values().items()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self._empty:
            self._empty.discard(name)

    def model_post_init(self, context: Any) -> None:
        """Make sections of the mappings that are given from Python."""
        for key, value in (self.__pydantic_extra__ or {}).items():
            self.__pydantic_extra__[key] = free(value)  # type: ignore[index]  # the loop goes over it


def free(value: Any) -> Any:
    """The value with every mapping in it as a FreeSection."""
    if isinstance(value, AbstractMapping):
        return FreeSection(**{str(key): item for key, item in value.items()})
    if isinstance(value, list | tuple):
        return [free(item) for item in value]
    return value
