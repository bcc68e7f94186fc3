"""Some events and their implementations in a pluggy manager, which orders, checks and calls them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

import pluggy

from scepter_core.bus.implementations import Event, Implementation, describe_hook
from scepter_core.bus.markers import PROJECT
from scepter_core.errors import Problem


class _View:
    """Some implementations of one hook, as a plugin that pluggy can walk over.

    The hook itself is not shown to pluggy: it may compare equal to another, have attributes that look like events, or
    take part in one event both early and late.
    """

    def __init__(self, found: Iterable[Implementation]) -> None:
        self._of_method = {one.method: one for one in found}
        vars(self).update({name: one.function for name, one in self._of_method.items()})

    def options(self, method: str) -> pluggy.HookimplOpts | None:
        one = self._of_method.get(method)
        return one.options if one is not None else None

    def implementation(self, function: object) -> Implementation:
        return next(one for one in self._of_method.values() if one.function is function)


class _Manager(pluggy.PluginManager):
    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        return plugin.options(name) if isinstance(plugin, _View) else None


class Channel:
    """The implementations that one emission can reach: those of a mode, or those of the run.

    Args:
        events: the events of the channel.
        found: implementations, hooks in the order in which they are to be called; those of other events are ignored.
        problems: what pluggy finds wrong with them is added here.
    """

    def __init__(
        self, events: Sequence[Event], found: Iterable[Implementation], problems: list[Problem]
    ) -> None:
        self.events = events
        names = {event.name for event in events}
        of_hooks = [list(group) for _, group in groupby(found, key=lambda one: id(one.hook))]
        own = [[one for one in group if one.event in names] for group in of_hooks]
        early = [[one for one in group if not one.options["trylast"]] for group in own]
        late = [[one for one in group if one.options["trylast"]] for group in own]
        self._manager = _Manager(PROJECT)
        if events:
            self._manager.add_hookspecs(type("Events", (), {event.name: event.function for event in events}))
        # pluggy calls what was registered last first, but what is trylast in the order of registration.
        for group in [*reversed(early), *late]:
            self._register(group, problems)

    def order(self, event: Event) -> list[Implementation]:
        """The implementations of an event in the order in which pluggy calls them."""
        views = [
            (cast("_View", found.plugin), found.function) for found in self.caller(event).get_hookimpls()
        ]
        return [view.implementation(function) for view, function in reversed(views)]

    def caller(self, event: Event) -> pluggy.HookCaller:
        """What calls the event, with exactly pluggy's semantics."""
        return cast("pluggy.HookCaller", getattr(self._manager.hook, event.name))

    def _register(self, group: list[Implementation], problems: list[Problem]) -> None:
        if not group:
            return
        view = _View(group)
        try:
            self._manager.register(view)
        except pluggy.PluginValidationError as error:
            where = f"{describe_hook(group[0].hook)} in {group[0].mode.upper()}_HOOKS"
            problems.append(Problem(f"{where}: {' '.join(str(error).split())}"))
