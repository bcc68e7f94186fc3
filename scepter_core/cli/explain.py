"""`scepter explain`: which hook runs at which event, in which order, without running anything."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from sys import stdout
from typing import TYPE_CHECKING, Any

from scepter_core.cli.options import ConfigFile, Disabled, Json, Modules, Overrides, Work
from scepter_core.cli.output import only_results_on_stdout, paint, print_json
from scepter_core.cli.tables import aligned

if TYPE_CHECKING:
    from scepter_core.bus import HookImplInfo

_EVENTS_OF_A_MODE = (
    "before_epoch",
    "before_all_iter",
    "before_iter",
    "after_iter",
    "after_all_iter",
    "on_metrics",
    "after_epoch",
)


@dataclass(frozen=True, slots=True)
class Moment:
    """An event at its place in the run.

    Attributes:
        event: its name.
        mode: the mode that it happens in; None where it is the run's.
        scope: `mode` or `run`: whose hooks it reaches.
        brought_by: the hook that brings the event; None of the core's.
        calls: the hooks in the order in which they are called.
    """

    event: str
    mode: str | None
    scope: str
    brought_by: Any
    calls: list[HookImplInfo]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the run, with the events that happen in it."""

    title: str
    moments: list[Moment]


def explain(
    config: ConfigFile,
    overrides: Overrides = None,
    modules: Modules = None,
    disable: Disabled = None,
    as_json: Json = False,
) -> Work:
    """Show which hook acts when.

    The events of the run that CFG describes, in the order in which they happen, each with its hooks in the order in
    which they are called. Hooks are built, data and model are not, and nothing runs.
    """
    return partial(_explain, config, overrides or (), modules or (), disable or (), as_json)


def _explain(
    config: str, overrides: Sequence[str], modules: Sequence[str], disable: Sequence[str], as_json: bool
) -> int:
    with only_results_on_stdout() if as_json else nullcontext():
        solver = _solver_with_hooks(config, overrides, modules, disable)
        parts = timeline(solver)
    if as_json:
        print_json(_as_json(config, solver, parts))
    else:
        _show(solver, parts)
    return 0


def _solver_with_hooks(
    config: str, overrides: Sequence[str], modules: Sequence[str], disable: Sequence[str]
) -> Any:
    from scepter_core import discovery
    from scepter_core.logging import make_logger
    from scepter_core.registry import SOLVERS
    from scepter_core.runconfig import load_config

    discovery.disable(disable)
    loaded = load_config(config, overrides, modules)
    solver = SOLVERS.build(loaded.solver, logger=make_logger(quiet=True))
    solver.construct_hook()
    solver.bus.freeze()
    return solver


# ---------------------------------------------------------------------------------------------------- the timeline


def timeline(solver: Any) -> list[Part]:
    """The parts of the run of a solver whose hooks are constructed, in the order in which they happen."""
    from scepter_core.sections import MODES

    modes = [mode for mode in MODES if solver.has(mode)]
    brought = _brought_events(solver)
    parts = [Part("at the start", [_moment(solver, "before_solve", None, "run")])]
    for mode in modes:
        moments = [
            _moment(solver, event, mode, "run" if event == "on_metrics" else "mode") for event in _EVENTS_OF_A_MODE
        ]
        parts.append(Part(f"{mode}, {_when(solver, mode)}", moments))
        own = [
            _moment(solver, event, mode, scope, hook)
            for event, (scope, hook) in brought.items()
            if scope == "mode" and _concerns(solver, event, mode, hook)
        ]
        parts.append(Part(f"{mode}, emitted by its hooks", own))
    of_run = [_moment(solver, name, None, "run", hook) for name, (scope, hook) in brought.items() if scope == "run"]
    parts.append(Part("any time, emitted by hooks", of_run))
    end = [_moment(solver, "on_exception", None, "run"), _moment(solver, "after_solve", None, "run")]
    parts.append(Part("at the end (on_exception only after an error or a signal)", end))
    return [part for part in parts if part.moments]


def _moment(solver: Any, event: str, mode: str | None, scope: str, brought_by: Any = None) -> Moment:
    return Moment(event, mode, scope, brought_by, solver.bus.order(event, mode or "train"))


def _brought_events(solver: Any) -> dict[str, tuple[str, Any]]:
    """Scope of each event that is not the core's, and the first hook that brings it."""
    from scepter_core.bus import CoreEvents
    from scepter_core.bus.markers import event_options

    found: dict[str, tuple[str, Any]] = {}
    for hook in _hooks(solver):
        declaring = getattr(hook, "events", None)
        for name in dir(declaring) if declaring is not None else ():
            options = event_options(inspect.getattr_static(declaring, name))
            if options is not None and not hasattr(CoreEvents, name):
                found.setdefault(name, (options.scope, hook))
    return {name: found[name] for name in solver.bus.events if name in found}


def _hooks(solver: Any) -> Iterator[Any]:
    for hooks in solver.hooks_dict.values():
        yield from hooks


def _concerns(solver: Any, event: str, mode: str, hook: Any) -> bool:
    """Whether a mode's part should show a brought event: hooks of the mode implement it, or one that brings it."""
    bringing = any(type(other) is type(hook) for other in solver.hooks_dict[mode])
    return bringing or bool(solver.bus.order(event, mode))


def _when(solver: Any, mode: str) -> str:
    """How often the part happens, in words."""
    if mode == "train":
        limits = [(solver.max_epochs, "epoch"), (solver.max_steps, "step")]
        given = [f"{limit} {unit}{'s' * (limit != 1)}" for limit, unit in limits if limit > 0]
        return " or ".join(given) + (", whichever is first" if len(given) > 1 else "") or "without limit"
    if not solver.has("train"):
        return "once"
    interval = solver.eval_interval if mode == "eval" else solver.cfg.test_interval
    if interval is None or interval <= 0:
        return "once, after the training"
    unit = "step" if solver.cfg.counts_steps else "epoch"
    return f"after every {unit}" if interval == 1 else f"after every {interval} {unit}s"


# --------------------------------------------------------------------------------------------------------- showing


def _show(solver: Any, parts: Sequence[Part]) -> None:
    from scepter_core.registry import origin

    print(f"{solver.cfg.name} ({origin(solver)}), work_dir {solver.work_dir}")
    rows: list[list[str]] = [[" EVENT", "HOOK", "PRIORITY", "OF", "FROM"]]
    for part in parts:
        for moment in part.moments:
            rows += _rows(moment)
    header, *lines = aligned(rows)
    print("\n" + paint(header, "bold", stdout))
    for part in parts:
        print("\n" + paint(part.title, "cyan", stdout))
        for moment in part.moments:
            if moment.brought_by is not None:
                print(f" {moment.event}, brought by {moment.brought_by.name} ({origin(moment.brought_by)})")
            for _ in range(max(1, len(moment.calls))):
                print(lines.pop(0))


def _rows(moment: Moment) -> list[list[str]]:
    event = f" {moment.event}" if moment.brought_by is None else ""
    rows = []
    for place, call in enumerate(moment.calls):
        priority = f"{call.priority} {call.kind}" if call.kind != "plain" else str(call.priority)
        source = f"{call.distribution} {call.version}".rstrip()
        of_mode = call.mode if moment.scope == "run" else ""
        rows.append([event if place == 0 else "", call.name, priority, of_mode, source])
    return rows or [[event, "-", "", "", ""]]


def _as_json(config: str, solver: Any, parts: Sequence[Part]) -> dict[str, Any]:
    from scepter_core.registry import source
    from scepter_core.sections import MODES

    def hook(name: str, of: Any) -> dict[str, Any]:
        distribution, version = source(of)
        return {"name": name, "distribution": distribution, "version": version or None}

    return {
        "config": config,
        "solver": hook(solver.cfg.name, solver),
        "modes": [mode for mode in MODES if solver.has(mode)],
        "timeline": [
            {
                "event": moment.event,
                "part": part.title,
                "mode": moment.mode,
                "scope": moment.scope,
                "brought_by": hook(moment.brought_by.name, moment.brought_by) if moment.brought_by else None,
                "hooks": [
                    hook(call.name, call.hook) | {"priority": call.priority, "kind": call.kind, "mode": call.mode}
                    for call in moment.calls
                ],
            }
            for part in parts
            for moment in part.moments
        ],
    }
