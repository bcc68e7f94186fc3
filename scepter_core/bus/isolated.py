"""Emits the events in which every hook is called though some fail."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from scepter_core.bus.blame import Blame
from scepter_core.bus.implementations import Event, Implementation

_Call = tuple[Implementation, Callable[..., Any]]
_Wrapper = Generator[object, object, object]


def isolated(event: Event, calls: Sequence[_Call], blame: Blame) -> Callable[..., None]:
    """The callable that emits an isolated event.

    When all hooks were called, the first error is raised, the others in its notes. A wrapper sees that error at its
    `yield`, and may replace or swallow it, as in pluggy; one that fails before its `yield` wraps nothing, and the hooks
    inside it are called all the same. What is no `Exception` (an interrupt from the keyboard) ends the event at once.
    """
    plain = [call for call in calls if not call[0].wraps]
    wrappers = [call for call in calls if call[0].wraps]

    def failures_of_plain(arguments: tuple[object, ...]) -> list[Exception]:
        errors = []
        for implementation, call in plain:
            try:
                call(*arguments)
            except Exception as error:  # raised by `emit`, when every hook had its turn
                blame(error, implementation)
                errors.append(error)
        return errors

    def failures(depth: int, arguments: tuple[object, ...]) -> list[Exception]:
        if depth == len(wrappers):
            return failures_of_plain(arguments)
        implementation, call = wrappers[depth]
        running: _Wrapper = call(*arguments)
        try:
            next(running)
        except Exception as error:  # as above; StopIteration: the wrapper returned instead of yielding
            mine = _misuse(event, "did not yield") if isinstance(error, StopIteration) else error
            blame(mine, implementation)
            return [mine, *failures(depth + 1, arguments)]
        return _leave(running, implementation, failures(depth + 1, arguments))

    def _leave(running: _Wrapper, implementation: Implementation, errors: list[Exception]) -> list[Exception]:
        try:
            if errors:
                running.throw(_joined(errors))
            else:
                running.send([])
        except StopIteration:
            return []
        except Exception as error:  # as above
            blame(error, implementation)
            return [error]
        running.close()
        twice = _misuse(event, "yielded twice")
        blame(twice, implementation)
        return [twice]

    def emit(*arguments: object) -> None:
        errors = failures(0, arguments)
        if errors:
            raise _joined(errors)

    return emit


def _misuse(event: Event, what: str) -> RuntimeError:
    return RuntimeError(f"a wrapper of {event.name} {what}")


def _joined(errors: list[Exception]) -> Exception:
    """The first error, with the others as notes."""
    first, *others = errors
    for other in others:
        notes = getattr(other, "__notes__", [])
        first.add_note("\n".join([f"after it failed: {type(other).__name__}: {other}", *notes]))
    return first
