"""pydantic's errors in the words that a YAML file's author knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from scepter_core.config.annotations import demand, describe, is_class, limit_text, members, unwrap
from scepter_core.config.nodes import Mapping, Node, Sequence
from scepter_core.config.section import keys_of
from scepter_core.errors import Mark

_BOUNDS = {
    "greater_than_equal": ("ge", ">="),
    "greater_than": ("gt", ">"),
    "less_than_equal": ("le", "<="),
    "less_than": ("lt", "<"),
    "multiple_of": ("multiple_of", "a multiple of"),
}
_FIXED = {
    "finite_number": "must be a finite number",
    "string_pattern_mismatch": "must match {pattern}",
    "extra_forbidden": "unknown key",
    "missing": "required key is missing",
}
_LENGTHS = {
    "string_too_short": ("min_length", "at least", "characters"),
    "string_too_long": ("max_length", "at most", "characters"),
    "too_short": ("min_length", "at least", "entries"),
    "too_long": ("max_length", "at most", "entries"),
}
_OWN_WORDS = ("value_error", "assertion_error")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an error stands.

    Attributes:
        path: the YAML path.
        mark: its position.
        node: what was written, None where nothing was.
        annotation: the type wanted there, None where it is not known.
        expected: that type in words.
        is_missing: whether the place is that of a required key which is not there.
    """

    path: str
    mark: Mark | None
    node: Node | None
    annotation: Any
    expected: str | None
    is_missing: bool = False


def locate(detail: Any, node: Mapping, model: type[BaseModel], path: str) -> Place:
    """The place in the tree that one of pydantic's errors means, as deep as it can be followed."""
    location = detail["loc"]
    current: Node = node
    owner: type[BaseModel] | None = model
    place = Place(path, node.mark, node, None, None)
    for step in location:
        found = _enter(step, current, owner, place, stale=detail["type"] != "missing")
        if found is None:
            continue  # the tag of a union's member
        place, owner = found
        if place.node is None:
            break
        current = place.node
    return place


def _enter(
    step: int | str, node: Node, owner: type[BaseModel] | None, place: Place, *, stale: bool
) -> tuple[Place, type[BaseModel] | None] | None:
    if isinstance(step, int):
        if isinstance(node, Sequence) and step < len(node.items):
            item = node.items[step]
            return Place(f"{place.path}[{step}]", item.mark, item, None, None), _model_in(place.annotation)
        return None
    if not isinstance(node, Mapping):
        return None
    key, annotation, expected = step, None, None
    if owner is not None:
        key = next((key for key, field in keys_of(owner).items() if step in (field, key)), step)
        field = owner.__pydantic_fields__.get(keys_of(owner).get(key, ""))
        if field is not None:
            annotation, expected = field.annotation, describe(field.annotation, field.metadata)
    path = f"{place.path}.{key}" if place.path else key
    entry = node.entries.get(key) or (node.stale.get(key) if stale else None)
    if entry is None and owner is None:
        return None
    missing = entry is None or expected is None
    mark = entry.node.mark or entry.key_mark if entry else node.mark
    return (
        Place(path, mark, entry.node if entry else None, annotation, expected, missing),
        _model_in(annotation),
    )


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that sections of the annotation have: itself, a union's member, or a list's entries."""
    for member in members(annotation):
        bare = unwrap(member)[0]
        if is_class(bare, BaseModel):
            return bare  # type: ignore[no-any-return]
        for inner in getattr(bare, "__args__", ()):
            if is_class(unwrap(inner)[0], BaseModel):
                return unwrap(inner)[0]  # type: ignore[no-any-return]
    return None


def speaks_for_itself(details: list[Any]) -> bool:
    """Whether the message is a validator's own, which says better than the type what is wanted."""
    return any(detail["type"] in _OWN_WORDS for detail in details)


def word(details: list[Any], place: Place) -> str:
    """One message for all that pydantic says of one place: of a union, what comes nearest to the value."""
    for kinds in (_OWN_WORDS, tuple(_BOUNDS), tuple(_FIXED), tuple(_LENGTHS)):
        for detail in details:
            if detail["type"] in kinds:
                return _word(detail)
    if place.expected is not None and not place.is_missing and _is_type_error(details[0]["type"]):
        return demand(place.annotation)
    return _word(details[0])


def _is_type_error(kind: str) -> bool:
    return kind.endswith(("_type", "_parsing", "_error", "_of")) and kind not in _OWN_WORDS


def _word(detail: Any) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _OWN_WORDS:
        return str(context.get("error") or detail["msg"]) or "not valid"
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return "must be " + limit_text(name, sign, context[name], type(detail["input"]) is int)
    if kind in _FIXED:
        return _FIXED[kind].format_map(context)
    if kind in _LENGTHS:
        name, words, what = _LENGTHS[kind]
        limit = context[name]
        return (
            "must not be empty" if (limit, words) == (1, "at least") else f"must have {words} {limit} {what}"
        )
    if kind == "literal_error":
        return f"must be one of {context['expected']}".replace(" or ", ", ")
    message: str = detail["msg"]
    return message[:1].lower() + message[1:]
