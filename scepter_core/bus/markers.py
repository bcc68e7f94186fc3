"""The two decorators of plugin authors: `hookspec` declares an event, `hookimpl` says more about an implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, overload

import pluggy

PROJECT = "scepter"
Scope = Literal["mode", "run"]

_F = TypeVar("_F", bound=Callable[..., object])
_OPTIONS = "__scepter_event__"
_pluggy_hookspec = pluggy.HookspecMarker(PROJECT)

hookimpl = pluggy.HookimplMarker(PROJECT)
"""pluggy's own marker. An event method needs none; it is for `tryfirst`, `trylast`, `wrapper`, `optionalhook` and
`specname`, all as in pluggy."""


@dataclass(frozen=True, slots=True)
class EventOptions:
    """What `hookspec` was given: see there."""

    scope: Scope = "mode"
    isolated: bool = False
    firstresult: bool = False


@overload
def hookspec(
    function: _F,
    *,
    scope: Scope = ...,
    isolated: bool = ...,
    firstresult: bool = ...,
    warn_on_impl: Warning | None = ...,
    warn_on_impl_args: Mapping[str, Warning] | None = ...,
) -> _F: ...
@overload
def hookspec(
    function: None = ...,
    *,
    scope: Scope = ...,
    isolated: bool = ...,
    firstresult: bool = ...,
    warn_on_impl: Warning | None = ...,
    warn_on_impl_args: Mapping[str, Warning] | None = ...,
) -> Callable[[_F], _F]: ...
def hookspec(
    function: _F | None = None,
    *,
    scope: Scope = "mode",
    isolated: bool = False,
    firstresult: bool = False,
    warn_on_impl: Warning | None = None,
    warn_on_impl_args: Mapping[str, Warning] | None = None,
) -> _F | Callable[[_F], _F]:
    """Declare a method of an `events` class to be an event; its name and arguments are the contract.

    Args:
        function: the method, where the decorator stands without parentheses.
        scope: `mode`: it goes to the hooks of the mode that emits it; `run`: to every hook of the run, once.
        isolated: every hook is called though some fail; the first error is raised when all were.
        firstresult: the first result that is not None is the event's; no further hook is called. Otherwise an event
            returns nothing.
        warn_on_impl: a warning for those who implement the event, say that it is deprecated.
        warn_on_impl_args: the same for single arguments.

    Raises:
        ValueError: an unknown scope, or an isolated event that asks for a first result.
    """
    if scope not in ("mode", "run"):
        raise ValueError(f"the scope of an event is 'mode' or 'run', not {scope!r}")
    if isolated and firstresult:
        raise ValueError("an event is isolated or asks for the first result, not both")

    def mark(function: _F) -> _F:
        setattr(function, _OPTIONS, EventOptions(scope, isolated, firstresult))
        return _pluggy_hookspec(
            function,
            firstresult=firstresult,
            warn_on_impl=warn_on_impl,
            warn_on_impl_args=warn_on_impl_args,
        )

    return mark if function is None else mark(function)


def event_options(function: object) -> EventOptions | None:
    """The options that `hookspec` left on a function; None if it is no event."""
    options = getattr(function, _OPTIONS, None)
    return options if isinstance(options, EventOptions) else None
