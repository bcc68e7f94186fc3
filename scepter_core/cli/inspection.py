"""The other side of `plugin_process`: imports one plugin, and writes what is in it to a file.

    python -m scepter_core.cli.inspection KIND NAME FILE
"""

from __future__ import annotations

import inspect as reflection
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from scepter_core.cli.plugin_process import broken

_EVENT_PREFIXES = ("before_", "after_", "on_")


def inspect(kind: str, name: str) -> dict[str, Any]:
    """What the plugin says of itself: description, events, keys; or why it is broken."""
    from scepter_core.errors import ScepterError
    from scepter_core.registry import REGISTRIES, UnknownName

    registry = REGISTRIES[kind]
    try:
        thing = registry.lookup(name)
        return {
            "broken": None,
            "description": _first_line(vars(thing).get("__doc__")),
            "events": list(_implemented(thing)) if kind == "hooks" else [],
            "brings": list(_brought(thing)) if kind == "hooks" else [],
            **_keys(registry.model(name), registry.common),
        }
    except UnknownName as error:
        return broken(error.message)
    except ScepterError as error:
        return broken(str(error))
    except BaseException as error:  # a plugin may fail in any way, and this process is there to say how
        return broken(f"{type(error).__name__}: {error}")


def _first_line(doc: Any) -> str | None:
    return reflection.cleandoc(doc).partition("\n")[0] or None if isinstance(doc, str) else None


def _implemented(hook: Any) -> Iterator[dict[str, Any]]:
    """The events that the class implements, the core's in the order of a run first."""
    from scepter_core.bus import CoreEvents
    from scepter_core.bus.markers import PROJECT

    order = list(vars(CoreEvents))
    found = []
    for name in dir(hook):
        static = reflection.getattr_static(hook, name)
        function = getattr(static, "__func__", static)
        marks = getattr(function, f"{PROJECT}_impl", None)
        inherited = function is getattr(CoreEvents, name, None)
        if isinstance(function, FunctionType) and not inherited and (marks or name.startswith(_EVENT_PREFIXES)):
            found.append(_event((marks or {}).get("specname") or name, marks or {}))
    place = {event: number for number, event in enumerate(order)}
    yield from sorted(found, key=lambda event: place.get(event["event"], len(place)))


def _event(name: str, marks: dict[str, Any]) -> dict[str, Any]:
    kinds = {"wrapper": "wrapper", "hookwrapper": "wrapper", "tryfirst": "tryfirst", "trylast": "trylast"}
    kind = next((word for mark, word in kinds.items() if marks.get(mark)), "plain")
    return {"event": name, "kind": kind, "optional": bool(marks.get("optionalhook"))}


def _brought(hook: Any) -> Iterator[dict[str, Any]]:
    from scepter_core.bus.markers import event_options

    for name, function in vars(hook.events).items() if hook.events else ():
        options = event_options(function)
        if options is not None:
            yield {
                "event": name,
                "arguments": list(reflection.signature(function).parameters)[1:],
                "scope": options.scope,
                "description": _first_line(function.__doc__),
            }


def _keys(model: Any, common: Any) -> dict[str, Any]:
    from scepter_core.config.section import keys_of

    fields, shared = model.model_fields, common.model_fields
    keys = [
        _key(key, fields[field], shared.get(field)) for key, field in keys_of(model).items() if key != "NAME"
    ]
    return {"keys": keys, "any_key": model.model_config.get("extra") == "allow"}


def _key(key: str, field: Any, shared: Any) -> dict[str, Any]:
    """A key of the section; one that all of the kind have is described there, if it is not here."""
    from scepter_core.config.annotations import describe
    from scepter_core.config.section import NamedThing

    kinds = [mark.kind.replace("_", " ") for mark in field.metadata if isinstance(mark, NamedThing)]
    required = field.is_required()
    return {
        "key": key,
        "type": describe(field.annotation, field.metadata) + (f", naming one of the {kinds[0]}" if kinds else ""),
        "required": required,
        "default": None if required else _text(field.get_default(call_default_factory=True)),
        "description": field.description or getattr(shared, "description", None),
    }


def _text(value: Any) -> str:
    """A default as YAML writes it."""
    if isinstance(value, str):
        return value if value.strip() else json.dumps(value)
    if isinstance(value, tuple | set | frozenset):
        value = list(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # nothing that YAML has
        return repr(value)


def main(kind: str, name: str, file: str) -> None:
    """Write the inspection of a plugin to `file`, and end the process whatever the plugin has left running in it."""
    Path(file).write_text(json.dumps(inspect(kind, name)), encoding="utf-8")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
