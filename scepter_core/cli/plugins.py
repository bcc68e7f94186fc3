"""`scepter plugins`: what is installed, from metadata alone; and what is inside, from a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from sys import stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scepter_core.cli.options import Json, Work
from scepter_core.cli.output import paint, print_json
from scepter_core.cli.tables import Cell, print_table, print_text
from scepter_core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from scepter_core.discovery import Plugin


def plugins(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this plugin, or this distribution's.", show_default=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Import every one, each in a process of its own; exit 1 if one is broken.")
    ] = False,
    as_json: Json = False,
) -> Work:
    """List plugins, or show what is in one.

    The list is made from metadata, without importing any. NAME, and --check, import in a process of its own, and show
    events and keys, or why it is broken; the exit status is 1 if one is.
    """
    return partial(_plugins, name, check, as_json)


def _plugins(name: str | None, check: bool, as_json: bool) -> int:
    from scepter_core import discovery

    installed = discovery.plugins()
    chosen = installed if name is None else _named(name, installed)
    if name is None and not check:
        _list(chosen, installed, as_json)
        return 0
    from scepter_core.cli.plugin_process import inspect_plugins

    found = inspect_plugins(chosen)
    if check:
        _find_missing_events(found)
    results = list(zip(chosen, found, strict=True))
    if as_json:
        print_json([_as_json(plugin) | details for plugin, details in results])
    elif check:
        _show_check(results)
    else:
        for place, (plugin, details) in enumerate(results):
            print("\n" * bool(place), end="")
            _show(plugin, details)
    return 1 if any(details["broken"] for details in found) else 0


def _named(name: str, installed: Sequence[Plugin]) -> list[Plugin]:
    from packaging.utils import canonicalize_name

    found = [plugin for plugin in installed if plugin.name == name] or [
        plugin for plugin in installed if canonicalize_name(plugin.distribution) == canonicalize_name(name)
    ]
    if not found:
        names = {plugin.name for plugin in installed} | {plugin.distribution for plugin in installed}
        hint = did_you_mean(name, sorted(names)) or "scepter plugins lists those that are installed"
        raise ConfigError(f"no plugin is named {name}; {hint}")
    return found


def _list(shown: Sequence[Plugin], installed: Sequence[Plugin], as_json: bool) -> None:
    if as_json:
        print_json([_as_json(plugin) for plugin in shown])
    elif shown:
        rows = [[*_identity(plugin), _status(plugin, installed)] for plugin in shown]
        print_table(("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATUS"), rows)
    else:
        print("no plugins are installed")


def _identity(plugin: Plugin) -> list[Cell]:
    return [plugin.kind, (plugin.name, "bold"), plugin.distribution, plugin.version]


def _status(plugin: Plugin, installed: Sequence[Plugin]) -> Cell:
    """What can be said of it without importing it."""
    from scepter_core._version import __version__

    if not plugin.compatible:
        return f"incompatible: needs scepter-core{plugin.requires_core}, this is {__version__}", "red"
    others = [
        other.source
        for other in installed
        if (other.kind, other.name) == (plugin.kind, plugin.name) and other is not plugin
    ]
    if others:
        return f"ambiguous: also from {', '.join(others)}", "yellow"
    return "compatible", "green"


def _find_missing_events(found: Sequence[dict[str, Any]]) -> None:
    """Call broken what needs an event that no installed plugin brings."""
    from scepter_core.bus import CoreEvents

    known = {name for name in vars(CoreEvents) if not name.startswith("_")}
    known |= {event["event"] for details in found for event in details["brings"]}
    for details in found:
        for event in details["events"]:
            if event["event"] not in known and not event["optional"] and not details["broken"]:
                hint = did_you_mean(event["event"], sorted(known))
                reason = f"no installed plugin brings the event {event['event']}"
                details["broken"] = f"{reason}; {hint}" if hint else reason


# --------------------------------------------------------------------------------------------------------- showing


def _show_check(results: Sequence[tuple[Plugin, dict[str, Any]]]) -> None:
    rows: list[list[Cell]] = []
    for plugin, details in results:
        status: Cell = (f"broken: {details['broken']}", "red") if details["broken"] else ("ok", "green")
        rows.append([*_identity(plugin), status])
    print_table(("KIND", "NAME", "DISTRIBUTION", "VERSION", "STATUS"), rows)
    broken = sum(bool(details["broken"]) for _, details in results)
    print(f"\n{len(results)} plugins, {broken or 'none'} broken")


def _show(plugin: Plugin, details: dict[str, Any]) -> None:
    print(f"{paint(plugin.name, 'bold', stdout)}  ({plugin.kind}, {plugin.source})")
    if details["broken"]:
        print(paint(f"broken: {details['broken']}", "red", stdout))
        return
    if details["description"]:
        print_text(details["description"])
    if details["events"]:
        print()
        print_text(f"acts at: {', '.join(_event(event) for event in details['events'])}", indent=9)
    for event in details["brings"]:
        signature = f"{event['event']}({', '.join(event['arguments'])})"
        print_text(f"brings:  {signature}, scope {event['scope']}. {event['description'] or ''}".rstrip(), indent=9)
    print()
    if details["keys"]:
        rows: list[list[Cell]] = [
            [(key["key"], "bold"), key["type"], "required" if key["required"] else key["default"], key["description"] or ""]
            for key in details["keys"]
        ]
        print_table(("KEY", "TYPE", "DEFAULT", "DESCRIPTION"), rows)
    if details["any_key"]:
        print("It takes any key." if not details["keys"] else "It takes any other key, too.")
    elif not details["keys"]:
        print("It has no keys.")


def _event(event: dict[str, Any]) -> str:
    marks = [event["kind"]] if event["kind"] != "plain" else []
    marks += ["optional"] if event["optional"] else []
    return f"{event['event']} ({', '.join(marks)})" if marks else str(event["event"])


def _as_json(plugin: Plugin) -> dict[str, Any]:
    return asdict(plugin) | {"compatible": plugin.compatible}
