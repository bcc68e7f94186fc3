"""Which events there are, and which methods of a hook implement them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pluggy

from scepter_core.bus.markers import PROJECT, EventOptions, event_options
from scepter_core.bus.specs import CoreEvents
from scepter_core.errors import ConfigError, Mark, Problem, did_you_mean
from scepter_core.registry import origin

_EVENT_NAME = re.compile(r"(before|after|on)_\w+")
_PLAIN = pluggy.HookimplOpts(
    wrapper=False, hookwrapper=False, optionalhook=False, tryfirst=False, trylast=False, specname=None
)
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Event:
    """A declared event: its name, its arguments in order, how it is emitted, and the function that declares it."""

    name: str
    arguments: tuple[str, ...]
    options: EventOptions
    function: FunctionType
    home: str


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """A method of a hook that implements an event."""

    hook: Any
    mode: str
    method: str
    event: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    options: pluggy.HookimplOpts

    @property
    def wraps(self) -> bool:
        """Whether it runs around the others, as a generator."""
        return self.options["wrapper"] or self.options["hookwrapper"]

    @property
    def kind(self) -> str:
        """`wrapper`, `tryfirst`, `trylast` or `plain`."""
        if self.wraps:
            return "wrapper"
        return "trylast" if self.options["trylast"] else "tryfirst" if self.options["tryfirst"] else "plain"


def describe_hook(hook: object) -> str:
    """Class and origin, for messages: `LogHook (scepter-log 0.1.0)`."""
    return f"{type(hook).__name__} ({origin(hook)})"


def declared_events(hooks: Iterable[object]) -> dict[str, Event]:
    """The core's events and those that the hooks bring, by name.

    Raises:
        ConfigError: two classes declare one event differently, or a class declares one in a way that cannot work.
    """
    events: dict[str, Event] = {}
    classes = dict.fromkeys(
        brought for hook in hooks if (brought := getattr(hook, "events", None)) is not None
    )
    for declaring in (CoreEvents, *classes):
        found = list(_events_of(declaring))
        if not found:
            raise ConfigError(
                f"{declaring.__qualname__} is given as `events`, but has no method marked @hookspec"
            )
        for event in found:
            first = events.setdefault(event.name, event)
            if (first.arguments, first.options) != (event.arguments, event.options):
                raise ConfigError(
                    f"the event {event.name} is declared in two ways: "
                    f"by {first.home} as {_declaration(first)}, by {event.home} as {_declaration(event)}"
                )
    return events


def _events_of(declaring: type) -> Iterator[Event]:
    home = f"{declaring.__module__}.{declaring.__qualname__}"
    for name in dir(declaring):
        function = inspect.getattr_static(declaring, name)
        options = event_options(function)
        if options is None:
            continue
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].name != "self":
            raise ConfigError(f"the event {name} of {home} must be a method: its first argument is self")
        if name.startswith("_") or any(_is_optional(parameter) for parameter in parameters):
            raise ConfigError(
                f"the event {name} of {home} needs a public name and arguments without defaults or stars"
            )
        yield Event(name, tuple(parameter.name for parameter in parameters[1:]), options, function, home)


def _declaration(event: Event) -> str:
    marks = [f"scope {event.options.scope}"]
    marks += [word for word in ("isolated", "firstresult") if getattr(event.options, word)]
    return f"({', '.join(event.arguments)}), {', '.join(marks)}"


def implementations(
    hook: object, mode: str, events: Mapping[str, Event], problems: list[Problem]
) -> list[Implementation]:
    """The hook's implementations of `events`; what is wrong with its methods is added to `problems`.

    The do-nothing methods of the base class are none. Implementations of an absent event that are marked
    `optionalhook` are left out.
    """
    found = []
    for name in dir(type(hook)):
        static = inspect.getattr_static(type(hook), name)
        function = static.__func__ if isinstance(static, (staticmethod, classmethod)) else static
        if not isinstance(function, FunctionType) or function is getattr(CoreEvents, name, None):
            continue
        marked = getattr(static, f"{PROJECT}_impl", None) or getattr(function, f"{PROJECT}_impl", None)
        if marked is None and not _EVENT_NAME.fullmatch(name):
            continue
        options = pluggy.HookimplOpts(**{**_PLAIN, **(marked or {})})
        event = options["specname"] or name
        if event not in events and options["optionalhook"]:
            continue
        bound = static.__get__(hook, type(hook))
        wrong = _unfit(bound, options, events[event]) if event in events else _unknown(event, events)
        if wrong is not None:
            message, hint = wrong
            problems.append(
                Problem(
                    f"{describe_hook(hook)} in {mode.upper()}_HOOKS: {name}: {message}",
                    mark=_where_listed(hook),
                    hint=hint,
                )
            )
            continue
        arguments = tuple(inspect.signature(bound).parameters)
        found.append(Implementation(hook, mode, name, event, bound, arguments, options))
    return found


def _where_listed(hook: object) -> Mark | None:
    """Where the configuration lists the hook; None for one that comes from Python."""
    return getattr(getattr(getattr(hook, "cfg", None), "_node", None), "mark", None)


def _unknown(event: str, events: Mapping[str, Event]) -> tuple[str, str]:
    hint = did_you_mean(event, events)
    return f"no event is named {event}", hint or (
        "an event of a plugin that is not listed is implemented with @hookimpl(optionalhook=True); "
        "before_*, after_* and on_* are names of events only"
    )


def _unfit(
    function: Callable[..., object], options: pluggy.HookimplOpts, event: Event
) -> tuple[str, str | None] | None:
    """What is wrong with an implementation, and a hint; None when nothing is."""
    if any(_is_optional(parameter) for parameter in inspect.signature(function).parameters.values()):
        return (
            f"arguments with defaults or stars: {inspect.signature(function)}",
            "name those of the event it needs",
        )
    unknown = [name for name in inspect.signature(function).parameters if name not in event.arguments]
    if unknown:
        return f"the event gives no {', '.join(unknown)}", f"it gives {', '.join(event.arguments) or 'nothing'}"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "an event cannot be async", None
    wraps = options["wrapper"] or options["hookwrapper"]
    if inspect.isgeneratorfunction(function) and not wraps:
        return "it has a yield, so it would never run", "mark it @hookimpl(wrapper=True)"
    if options["hookwrapper"] and event.options.isolated:
        return "hookwrapper=True does not work in this event", "mark it @hookimpl(wrapper=True)"
    return None


def _is_optional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in _STARRED or parameter.default is not inspect.Parameter.empty
