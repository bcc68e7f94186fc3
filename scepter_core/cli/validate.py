"""`scepter validate`: is the configuration right?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from scepter_core.cli.options import ConfigFile, Disabled, Json, Modules, Overrides, Work
from scepter_core.cli.output import only_results_on_stdout, print_json
from scepter_core.errors import ConfigError, Problem

if TYPE_CHECKING:
    from scepter_core.runconfig import RunConfig


def validate(
    config: ConfigFile,
    overrides: Overrides = None,
    modules: Modules = None,
    disable: Disabled = None,
    as_json: Json = False,
) -> Work:
    """Check all of CFG.

    Says what it would run, or everything that is wrong with it; nothing is built.
    """
    return partial(_validate, config, overrides or (), modules or (), disable or (), as_json)


def _validate(
    config: str, overrides: Sequence[str], modules: Sequence[str], disable: Sequence[str], as_json: bool
) -> int:
    from scepter_core import discovery
    from scepter_core.runconfig import load_config

    problems: Sequence[Problem] = ()
    try:
        with only_results_on_stdout() if as_json else nullcontext():
            discovery.disable(disable)
            loaded = load_config(config, overrides, modules)
            _check_events(loaded.solver)
    except ConfigError as error:
        if not as_json:
            raise
        problems = error.problems
    if as_json:
        print_json({"valid": not problems, "problems": [_as_json(problem) for problem in problems]})
    else:
        print(f"ok: {config}\n{_what_runs(loaded)}")
    return ConfigError.exit_status if problems else 0


def _check_events(settings: Any) -> None:
    """Check the hooks' methods against the events of the run. The hooks are not initialised: only classes matter."""
    from scepter_core.bus import EventBus
    from scepter_core.registry import HOOKS
    from scepter_core.sections import MODES

    bus = EventBus()
    for mode in MODES:
        for section in getattr(settings, f"{mode}_hooks"):
            kind: Any = HOOKS.get(section.name)
            hook = kind.__new__(kind)
            hook.cfg = section
            bus.register(hook, mode)
    bus.freeze()


def _what_runs(config: RunConfig) -> str:
    from scepter_core.sections import MODES

    settings: Any = config.solver
    parts = []
    for mode in MODES:
        if settings.runs(mode):
            names = ", ".join(section.name for section in getattr(settings, f"{mode}_hooks"))
            parts.append(f"{mode} ({names or 'no hooks'})")
    return f"{settings.name}: {', '.join(parts) or 'nothing to run'}"


def _as_json(problem: Problem) -> dict[str, Any]:
    mark = problem.mark
    return {
        "message": problem.message,
        "path": problem.path,
        "file": mark.file if mark else None,
        "line": mark.line or None if mark else None,
        "column": mark.column or None if mark else None,
        "found": problem.found,
        "expected": problem.expected,
        "hint": problem.hint,
    }
