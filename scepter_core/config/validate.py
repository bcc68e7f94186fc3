"""A tree against the models of its sections: every problem found, each where it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from scepter_core.config.coerce import INVALID, Coercer, wants_null
from scepter_core.config.messages import locate, speaks_for_itself, word
from scepter_core.config.nodes import Entry, Mapping, Node, Scalar, Sequence, source_text, to_python
from scepter_core.config.section import FreeSection, NamedThing, Section, UnknownName, keys_of
from scepter_core.config.signature import shared_keys
from scepter_core.errors import ConfigError, Mark, Problem, did_you_mean

Resolve: TypeAlias = Callable[[str, str], type[Section]]
"""From a kind and a NAME to the model of its section; raises UnknownName or ConfigError."""

_SHOWN_KEYS = 40


def validate(
    node: Mapping, model: type[BaseModel], *, path: str, resolve: Resolve, problems: list[Problem]
) -> Any:
    """The section that `node` describes, as an instance of `model`; None when something is wrong.

    Args:
        node: the section as written.
        model: its model. Fields marked with NamedThing hold sections of what their NAME says.
        path: the section's YAML path; empty for a whole file.
        resolve: finds the model for a NAME.
        problems: everything that is wrong is added here.
    """
    made = _Validator(resolve, problems).section(node, model, path, None)
    return None if made is INVALID else made


class _Validator:
    def __init__(self, resolve: Resolve, problems: list[Problem]) -> None:
        self._resolve, self._problems = resolve, problems

    def section(self, node: Node, model: type[BaseModel], path: str, thing: NamedThing | None) -> Any:
        """The section as an instance of its model, or INVALID."""
        if not isinstance(node, Mapping):
            if isinstance(node, Scalar) and isinstance(node.value, model):
                return node.value  # a section that a program made already
            expected = "a section with a NAME" if thing else "a section: keys and values below it"
            self._note("must be a section", path, node.mark, source_text(node), expected)
            return INVALID
        if thing is not None:
            found = self._model_of(node, thing, path)
            if found is None:
                return INVALID
            model = found
        elif issubclass(model, Section):
            model = model.model_for(node.entries)
        return self._validated(node, _holding(node, model, self._earlier(node, thing)), model, path)

    def _note(self, message: str, path: str, mark: Mark | None, *details: str | None) -> None:
        self._problems.append(Problem(message, path, mark, *details))

    def _model_of(self, node: Mapping, thing: NamedThing, path: str) -> type[Section] | None:
        written = node.get("NAME")
        if not isinstance(written, Scalar) or written.is_null:
            mark = written.mark if written else node.mark
            expected = f"the name of one of the {thing.kind.replace('_', ' ')}"
            found = source_text(written) if written else None
            missing = written is None or isinstance(written, Scalar)
            self._note(
                "required key is missing" if missing else "must be a string",
                f"{path}.NAME",
                mark,
                found,
                expected,
            )
            return None
        try:
            return self._resolve(thing.kind, written.text)
        except UnknownName as error:
            self._note(error.message, f"{path}.NAME", written.mark, source_text(written), None, error.hint)
        except ConfigError as error:
            for problem in error.problems:
                details = (problem.found, problem.expected, problem.hint)
                self._note(problem.message, f"{path}.NAME", problem.mark or written.mark, *details)
        return None

    def _earlier(self, node: Mapping, thing: NamedThing | None) -> type[Section] | None:
        """The model of the NAME that another one took the place of, where it can be had."""
        name = node.stale.get("NAME")
        if thing is None or name is None or not isinstance(name.node, Scalar):
            return None
        try:
            return self._resolve(thing.kind, name.node.text)
        except (UnknownName, ConfigError):
            return None

    # --- one section -----------------------------------------------------------------------------

    def _validated(self, node: Mapping, entries: dict[str, Entry], model: type[BaseModel], path: str) -> Any:
        before = len(self._problems)
        data: dict[str, Any] = {}
        failed: set[str] = set()
        coercer = Coercer(self.section, self._problems)
        for key, field_name in keys_of(model).items():
            entry = entries.get(key)
            field = _fields(model)[field_name]
            if entry is None or _asks_default(entry.node, field):
                continue
            value = coercer.coerce(entry.node, field.annotation, _join(path, key), field.metadata)
            if value is INVALID:
                failed.add(field_name)
            else:
                data[field_name] = value
        taken = _taken(entries, model, path)
        free, empty = self._others(entries, model, path)
        made = self._made(node, model, path, {**free, **data}, failed)
        if made is INVALID or len(self._problems) > before:
            return INVALID
        if isinstance(made, Section):
            made._node, made._path, made._taken = node, path, taken
        if isinstance(made, FreeSection):
            made._empty = empty
        return made

    def _others(
        self, entries: dict[str, Entry], model: type[BaseModel], path: str
    ) -> tuple[dict[str, Any], set[str]]:
        """The keys that are no fields: values where the model is open, else problems."""
        keys = keys_of(model)
        is_open = model.model_config.get("extra") == "allow"
        # Code that reads its section as it stands may have a use for what others take with a notice.
        known = set(keys) if is_open else {*keys, *getattr(model, "taken_with_notice", ())}
        others = {key: entry for key, entry in entries.items() if key not in known}
        if not is_open:
            for key, entry in others.items():
                self._unknown(key, entry, keys, path)
            return {}, set()
        fields = set(keys.values())
        for key in fields & set(others):  # a key in lower case that would be taken for the field itself
            self._unknown(key, others.pop(key), keys, path)
        if not issubclass(model, FreeSection):
            return {key: to_python(entry.node) for key, entry in others.items()}, set()
        empty = {
            key for key, entry in others.items() if isinstance(entry.node, Scalar) and entry.node.is_empty
        }
        return {key: _free(entry.node, _join(path, key)) for key, entry in others.items()}, empty

    def _unknown(self, key: str, entry: Entry, keys: dict[str, str], path: str) -> None:
        known = sorted(keys, key=lambda name: name != "NAME")
        shown = ", ".join(known[:_SHOWN_KEYS]) + (", …" if len(known) > _SHOWN_KEYS else "")
        expected = f"one of {shown}" if known else "no keys"
        found = source_text(entry.node)
        self._note("unknown key", _join(path, key), entry.key_mark, found, expected, did_you_mean(key, known))

    def _made(
        self, node: Mapping, model: type[BaseModel], path: str, data: dict[str, Any], failed: set[str]
    ) -> Any:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            self._translate(error, node, model, path, failed)
        except ConfigError as error:
            self._problems.extend(
                Problem(p.message, p.path or path, p.mark or node.mark, p.found, p.expected, p.hint)
                for p in error.problems
            )
        except (
            Exception
        ) as error:  # a validator of a plugin may fail in any way; the user still gets the place
            self._note(f"the section's validation failed: {type(error).__name__}: {error}", path, node.mark)
        return INVALID

    def _translate(
        self, error: ValidationError, node: Mapping, model: type[BaseModel], path: str, failed: set[str]
    ) -> None:
        """pydantic's errors as problems: one a place, in our words."""
        by_place: dict[str, list[Any]] = {}
        places = {}
        for detail in error.errors(include_url=False):
            location = detail["loc"]
            if (location and location[0] in failed) or (not location and failed):
                continue  # a field that could not be read is reported; what follows from it is noise
            place = locate(detail, node, model, path)
            by_place.setdefault(place.path, []).append(detail)
            places[place.path] = place
        for where, details in by_place.items():
            place = places[where]
            found = source_text(place.node) if place.node is not None and not place.is_missing else None
            expected = None if speaks_for_itself(details) else place.expected
            self._note(
                word(details, place), where, place.mark, None if place.node is node else found, expected
            )


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return model.__pydantic_fields__


def _holding(node: Mapping, model: type[BaseModel], earlier: type[BaseModel] | None) -> dict[str, Entry]:
    """The entries that count: of those of an earlier NAME, the ones that mean the same under this one."""
    if not node.stale:
        return node.entries
    shared = shared_keys(model, earlier)
    return {**{key: entry for key, entry in node.stale.items() if key in shared}, **node.entries}


def _taken(entries: dict[str, Entry], model: type[BaseModel], path: str) -> dict[str, str]:
    """The written keys that are known and do nothing, by their path, each with why."""
    if model.model_config.get("extra") == "allow":
        return {}
    why: dict[str, str] = getattr(model, "taken_with_notice", {})
    written = [key for key, entry in entries.items() if key in why and not _is_null(entry)]
    return {_join(path, key): why[key] for key in written if key not in keys_of(model)}


def _is_null(entry: Entry) -> bool:
    return isinstance(entry.node, Scalar) and entry.node.is_null


def _asks_default(node: Node, field: FieldInfo) -> bool:
    """Whether the key stands there without a value of its own."""
    return isinstance(node, Scalar) and node.is_null and not wants_null(node, field.annotation)


def _free(node: Node, path: str) -> Any:
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [_free(item, f"{path}[{place}]") for place, item in enumerate(node.items)]
    values = {key: _free(entry.node, _join(path, key)) for key, entry in node.entries.items()}
    section = FreeSection(**values)
    section._node, section._path = node, path
    section._empty = {k for k, e in node.entries.items() if isinstance(e.node, Scalar) and e.node.is_empty}
    return section


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
