"""Compiles an event and its implementations to one callable.

No implementation: a function that does nothing. Plain ones: direct calls over a tuple. Wrappers: pluggy's own call.
All of them return None, but for events that ask for the first result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pluggy

from scepter_core.bus.blame import Blame
from scepter_core.bus.implementations import Event, Implementation
from scepter_core.bus.isolated import isolated

Emit = Callable[..., Any]


def nothing(argument: object) -> None:
    """What an event of one argument that nobody implements is compiled to."""


def nothing_of_many(*arguments: object) -> None:
    """The same, of any other number of arguments."""


def compile_event(
    event: Event, found: Sequence[Implementation], caller: pluggy.HookCaller, blame: Blame
) -> Emit:
    """The callable that emits the event, given its arguments by position.

    Args:
        event: the event.
        found: its implementations, in call order.
        caller: pluggy's caller of the same implementations.
        blame: says on an exception which hook it came from.
    """
    if not found:
        return nothing if len(event.arguments) == 1 else nothing_of_many
    if event.options.isolated:
        return isolated(event, [(one, _positional(event, one)) for one in found], blame)
    if any(one.wraps for one in found):
        return _through_pluggy(event, found, caller, blame)
    calls = tuple(_positional(event, one) for one in found)
    if event.options.firstresult:
        return _first_result(calls, found, blame)
    if len(event.arguments) != 1:
        return _all(calls, found, blame)
    return _one(calls[0], found[0], blame) if len(calls) == 1 else _all_of_one_argument(calls, found, blame)


def _one(call: Emit, implementation: Implementation, blame: Blame) -> Emit:
    def emit(argument: object) -> None:
        try:
            call(argument)
        except Exception as error:
            blame(error, implementation)
            raise

    return emit


def _all_of_one_argument(calls: tuple[Emit, ...], found: Sequence[Implementation], blame: Blame) -> Emit:
    owners = _owners(calls, found)

    def emit(argument: object) -> None:
        call: Emit = nothing
        try:
            for call in calls:
                call(argument)
        except Exception as error:
            blame(error, owners[id(call)])
            raise

    return emit


def _all(calls: tuple[Emit, ...], found: Sequence[Implementation], blame: Blame) -> Emit:
    owners = _owners(calls, found)

    def emit(*arguments: object) -> None:
        call: Emit = nothing_of_many
        try:
            for call in calls:
                call(*arguments)
        except Exception as error:
            blame(error, owners[id(call)])
            raise

    return emit


def _first_result(calls: tuple[Emit, ...], found: Sequence[Implementation], blame: Blame) -> Emit:
    owners = _owners(calls, found)

    def emit(*arguments: object) -> Any:
        call: Emit = nothing_of_many
        try:
            for call in calls:
                result: object = call(*arguments)
                if result is not None:
                    return result
        except Exception as error:
            blame(error, owners[id(call)])
            raise
        return None

    return emit


def _through_pluggy(
    event: Event, found: Sequence[Implementation], caller: pluggy.HookCaller, blame: Blame
) -> Emit:
    names, firstresult = event.arguments, event.options.firstresult

    def emit(*arguments: object) -> Any:
        try:
            result = caller(**dict(zip(names, arguments, strict=True)))
        except Exception as error:
            blame.by_traceback(error, found)
            raise
        return result if firstresult else None

    return emit


def _owners(calls: tuple[Emit, ...], found: Sequence[Implementation]) -> dict[int, Implementation]:
    return {id(call): implementation for call, implementation in zip(calls, found, strict=True)}


def _positional(event: Event, implementation: Implementation) -> Emit:
    """The implementation as a function of all of the event's arguments, in the event's order."""
    function, wanted = implementation.function, implementation.arguments
    if wanted == event.arguments:
        return function
    places = [event.arguments.index(name) for name in wanted]
    if not places:
        return lambda *arguments: function()
    if len(places) == 1:
        place = places[0]
        return lambda *arguments: function(arguments[place])
    return lambda *arguments: function(*[arguments[place] for place in places])
