"""The tables of docs/events.md against the declarations, and its timeline against a run."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import scepter_core
from scepter_core import HOOKS, Hook
from scepter_core.bus.markers import event_options
from scepter_core.bus.specs import CoreEvents

PAGE = "docs/events.md"


def _declared(owner: type) -> dict[str, str]:
    """Event with its arguments → scope, of all that a class declares."""
    found = {}
    for name, function in vars(owner).items():
        options = event_options(function)
        if options is not None:
            arguments = ", ".join(list(inspect.signature(function).parameters)[1:])
            found[f"`{name}({arguments})`"] = options.scope
    return found


def test_the_cores_events_are_all_there(docs: Any) -> None:
    (table,) = docs.tables(PAGE, "The core's events")
    assert {row[0]: row[1] for row in table} == _declared(CoreEvents)


def test_the_events_that_plugins_bring_are_all_there(docs: Any) -> None:
    (table,) = docs.tables(PAGE, "Events that plugins bring")
    written = {row[0]: (row[1].split(" ")[0], row[2]) for row in table}
    declared = {}
    for point in entry_points(group="scepter.hooks"):
        if point.dist is not None and point.value.startswith(("scepter_backward", "scepter_lr", "scepter_log", "scepter_check")):
            brought = point.load().events
            for event, scope in (_declared(brought) if brought else {}).items():
                declared[event] = (scope, point.dist.name)
    assert written == declared


def test_the_priorities_of_the_standard_hooks(docs: Any) -> None:
    line = docs.text(PAGE).split("The standard hooks: ", 1)[1]
    written = dict(re.findall(r"(\w+Hook) (\d+)", line))
    assert len(written) == 4
    for name, priority in written.items():
        model: Any = HOOKS.model(name)
        assert model.model_fields["priority"].default == int(priority)


@HOOKS.register_class()
class TimelineRecorder(Hook):
    """Notes each event with the counters."""

    seen: list[tuple[str, str, int, int, int, int]] = []

    def _note(self, event: str, solver: Any) -> None:
        self.seen.append((event, solver.mode, solver.epoch, solver.iter, solver.total_iter, solver.train_steps))

    def before_solve(self, solver: Any) -> None:
        self._note("before_solve", solver)

    def before_epoch(self, solver: Any) -> None:
        self._note("before_epoch", solver)

    def before_all_iter(self, solver: Any) -> None:
        self._note("before_all_iter", solver)

    def before_iter(self, solver: Any) -> None:
        self._note("before_iter", solver)

    def after_iter(self, solver: Any) -> None:
        self._note("after_iter", solver)

    def after_all_iter(self, solver: Any) -> None:
        self._note("after_all_iter", solver)

    def on_metrics(self, solver: Any, mode: str) -> None:
        self._note("on_metrics", solver)

    def after_epoch(self, solver: Any) -> None:
        self._note("after_epoch", solver)

    def on_exception(self, solver: Any) -> None:
        self._note("on_exception", solver)

    def after_solve(self, solver: Any) -> None:
        self._note("after_solve", solver)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, int, int, int, int]]:
    """Two epochs of two steps, each followed by an eval of one, then a test of one."""
    root = Path(__file__).parents[2]
    data = {"NAME": "NoisySine", "SAMPLES": 4, "BATCH_SIZE": 2}
    TimelineRecorder.seen = []
    # A run event reaches each of the three instances: only the first one notes those.
    hooks = [{"NAME": "TimelineRecorder"}]
    scepter_core.run(
        {
            "PLUGINS": [str(root / "docs/examples/regression/task.py")],
            "SOLVER": {
                "NAME": "TrainValSolver",
                "WORK_DIR": str(tmp_path_factory.mktemp("run")),
                "MAX_EPOCHS": 2,
                "TRAIN_DATA": data,
                "EVAL_DATA": {**data, "BATCH_SIZE": 4},
                "TEST_DATA": {**data, "BATCH_SIZE": 4},
                "MODEL": {"NAME": "Curve"},
                "TRAIN_HOOKS": hooks,
                "EVAL_HOOKS": hooks,
                "TEST_HOOKS": hooks,
            },
        }
    )
    return TimelineRecorder.seen


RUN_EVENTS = ("before_solve", "on_metrics", "after_solve", "on_exception")


def test_the_timeline_is_the_runs(docs: Any, trace: list[tuple[str, str, int, int, int, int]]) -> None:
    timeline = docs.blocks(PAGE, "text")[0].text
    written = re.findall(r"\b(?:before|after|on)_\w+", timeline)
    inner = ["before_epoch", "before_all_iter", "before_iter", "after_iter", "after_all_iter", "on_metrics", "after_epoch"]
    assert written == ["before_solve", *inner, "on_exception", "after_solve"]
    loop = ["before_iter", "after_iter"]

    def once(steps: int) -> list[str]:
        return [*inner[:2], *loop * steps, *inner[4:]]

    events: list[str] = []
    for event, *_ in trace:
        if not (event in RUN_EVENTS and events and events[-1] == event):  # the three instances of a run event
            events.append(event)
    epoch = [*once(2), *once(1)]
    assert events == ["before_solve", *epoch, *epoch, *once(1), "after_solve"]


def test_the_counters_are_as_the_table_says(docs: Any, trace: list[tuple[str, str, int, int, int, int]]) -> None:
    (table,) = docs.tables(PAGE, "Counters")
    assert [row[0] for row in table] == [
        f"`solver.{name}`" for name in ("epoch", "iter", "total_iter", "train_steps", "total_updates")
    ]
    train = [entry for entry in trace if entry[1] == "train" and entry[0] not in RUN_EVENTS]
    second = [(event, *counters) for event, _, epoch, *counters in train if epoch == 2]
    assert second == [  # iter, total_iter, train_steps
        ("before_epoch", 0, 2, 2),
        ("before_all_iter", 0, 2, 2),
        ("before_iter", 0, 2, 2),
        ("after_iter", 0, 2, 3),
        ("before_iter", 1, 3, 3),
        ("after_iter", 1, 3, 4),
        ("after_all_iter", 2, 4, 4),
        ("after_epoch", 2, 4, 4),
    ]
    evals = [(event, epoch, *rest) for event, mode, epoch, *rest in trace if mode == "eval" and event == "before_iter"]
    assert evals == [("before_iter", 1, 0, 0, 2), ("before_iter", 2, 0, 1, 4)]
