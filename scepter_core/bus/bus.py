"""The event bus of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scepter_core.bus.blame import Blame
from scepter_core.bus.channel import Channel
from scepter_core.bus.dispatch import Emit, compile_event
from scepter_core.bus.implementations import (
    Event,
    Implementation,
    declared_events,
    describe_hook,
    implementations,
)
from scepter_core.errors import ConfigError, Problem, did_you_mean
from scepter_core.registry import source
from scepter_core.sections import MODES


@dataclass(frozen=True, slots=True)
class HookImplInfo:
    """One call of an event, for those who show the order.

    Attributes:
        hook: the hook.
        name: its NAME.
        distribution: the distribution that it came from, or its file.
        version: the distribution's version; empty for a file.
        priority: its priority.
        kind: how it takes part: `wrapper`, `tryfirst`, `plain` or `trylast`.
        mode: the mode under which it is listed.
    """

    hook: Any
    name: str
    distribution: str
    version: str
    priority: int
    kind: str
    mode: str


class EventTable:
    """The events that a mode can emit, each a callable attribute: `table.after_iter(solver)`.

    Arguments go by position, in the order in which the event declares them. It stays the same object, whatever is
    registered later, so a loop may hold it.
    """

    # At run time it has none: an attribute that may come from __getattr__ costs more than the event.
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Emit: ...


class EventBus:
    """Brings the events of one run to its hooks.

    Hooks are registered, then the bus is frozen: every event is checked and compiled. Registering later compiles again.

    Args:
        describe: where the run is, for the note on an exception: `train epoch 1, iteration 3`.

    Attributes:
        on: the table of events of each mode: `bus.on["train"].after_iter(solver)`. Run events are in every table; those
            that a hook brings are there from the freeze on.
        frozen: whether the events are compiled. Emitting freezes.
    """

    def __init__(self, describe: Callable[[], str] = str) -> None:
        self.on: Mapping[str, EventTable] = {mode: EventTable() for mode in MODES}
        self.frozen = False
        self._blame = Blame(describe)
        self._entries: list[tuple[Any, str]] = []
        self._events: dict[str, Event] = {}
        self._order: dict[tuple[str, str], list[Implementation]] = {}
        for table in self.on.values():
            vars(table).update({event: self._freezing(table, event) for event in declared_events(())})

    def register(self, hook: object, mode: str) -> None:
        """Add a hook to those of a mode, behind those of the same priority.

        Raises:
            ValueError: no such mode, or the hook is registered in it already.
            ConfigError: after the freeze: as `freeze`; the bus stays as it was.
        """
        if mode not in MODES:
            raise ValueError(f"no mode {mode!r}; the modes are {', '.join(MODES)}")
        if any(known is hook and where == mode for known, where in self._entries):
            raise ValueError(f"{describe_hook(hook)} is registered in {mode} already")
        self._change([*self._entries, (hook, mode)])

    def unregister(self, hook: object, mode: str) -> None:
        """Take a hook out of a mode.

        Raises:
            ValueError: it is not there.
            ConfigError: after the freeze, as `freeze`: another hook needs an event that it brings.
        """
        remaining = [entry for entry in self._entries if entry[0] is not hook or entry[1] != mode]
        if len(remaining) == len(self._entries):
            raise ValueError(f"{describe_hook(hook)} is not registered in {mode}")
        self._change(remaining)

    def freeze(self) -> None:
        """Check every hook and compile every event.

        Raises:
            ConfigError: every hook method that is named like an event but is none, or cannot be called; two hooks of
                one role in a mode; an event that is declared in two ways.
        """
        self._compile(self._entries)
        self.frozen = True

    def has(self, event: str) -> bool:
        """Whether the event can be emitted: it is the core's, or a registered hook brings it."""
        if not self.frozen:
            self.freeze()
        return event in self._events

    def order(self, event: str, mode: str) -> list[HookImplInfo]:
        """The calls of an event in a mode, in order; of a run event, all of the run's. Wrappers come first.

        Raises:
            ValueError: no such event.
        """
        if not self.has(event):
            raise ValueError(f"no event is named {event}. {did_you_mean(event, self._events) or ''}".rstrip())
        return [_info(one) for one in self._order[mode, event]]

    @property
    def events(self) -> list[str]:
        """The names of all events, the core's first, in the order in which they are declared."""
        if not self.frozen:
            self.freeze()
        return list(self._events)

    def _change(self, entries: list[tuple[Any, str]]) -> None:
        if self.frozen:
            self._compile(entries)
        self._entries = entries

    def _compile(self, entries: Sequence[tuple[Any, str]]) -> None:
        """Make everything anew, and only when all is well put it in the place of what was."""
        unsorted = [hook for hook, _ in entries if not isinstance(hook.priority, int | float)]
        if unsorted:
            raise ConfigError([Problem(f"{describe_hook(hook)}: its priority is no number", found=repr(hook.priority)) for hook in unsorted])
        entries = sorted(entries, key=lambda entry: (entry[0].priority, MODES.index(entry[1])))
        events = declared_events(hook for hook, _ in entries)
        problems = _roles_taken_twice(entries)
        found = [one for hook, mode in entries for one in implementations(hook, mode, events, problems)]
        run_wide = Channel(_of_scope("run", events), _once(found), problems)
        of_mode = {
            mode: Channel(_of_scope("mode", events), [one for one in found if one.mode == mode], problems)
            for mode in MODES
        }
        if problems:
            raise ConfigError(problems)
        shared = self._emitters(run_wide)
        for mode, channel in of_mode.items():
            table = vars(self.on[mode])
            table.clear()
            table.update(shared | self._emitters(channel))
        self._events = events
        self._order = {
            (mode, event.name): channel.order(event)
            for mode in MODES
            for channel in (run_wide, of_mode[mode])
            for event in channel.events
        }

    def _freezing(self, table: EventTable, event: str) -> Emit:
        """What an event of the core is until the freeze."""

        def emit(*arguments: object) -> Any:
            self.freeze()
            return getattr(table, event)(*arguments)

        return emit

    def _emitters(self, channel: Channel) -> dict[str, Emit]:
        return {
            event.name: compile_event(event, channel.order(event), channel.caller(event), self._blame)
            for event in channel.events
        }


def _of_scope(scope: str, events: Mapping[str, Event]) -> list[Event]:
    return [event for event in events.values() if event.options.scope == scope]


def _once(found: Iterable[Implementation]) -> list[Implementation]:
    """Without those of hooks that an earlier mode has already: a run event reaches a hook once."""
    first_mode: dict[int, str] = {}
    return [one for one in found if first_mode.setdefault(id(one.hook), one.mode) == one.mode]


def _roles_taken_twice(entries: Iterable[tuple[Any, str]]) -> list[Problem]:
    taken: dict[tuple[str, str], object] = {}
    problems = []
    for hook, mode in entries:
        role = getattr(hook, "role", None)
        if role is None:
            continue
        first = taken.setdefault((mode, role), hook)
        if first is not hook:
            both = f"{describe_hook(first)} and {describe_hook(hook)}"
            problems.append(
                Problem(
                    f"{mode.upper()}_HOOKS: {both} both have the role {role!r}, which only one hook can have",
                    hint="leave one of them out",
                )
            )
    return problems


def _info(one: Implementation) -> HookImplInfo:
    distribution, version = source(one.hook)
    return HookImplInfo(one.hook, one.hook.name, distribution, version, one.hook.priority, one.kind, one.mode)
