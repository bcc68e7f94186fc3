"""Fixtures of the whole-system tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("long", max_examples=10_000)  # a hundred times the default
TASKS = Path(__file__).with_name("tasks.py")


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A configuration of the small task in tests/tasks.py; keyword arguments are keys of SOLVER, None removes one."""

    def make(**keys: Any) -> dict[str, Any]:
        solver: dict[str, Any] = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(tmp_path / "run"),
            "MAX_EPOCHS": 2,
            "TRAIN_DATA": {"NAME": "Floats", "VALUES": [1, 1, 1], "SHUFFLE": False},
            "MODEL": {"NAME": "GradProbe"},
            "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 1.0},
            "TRAIN_HOOKS": [{"NAME": "BackwardHook"}],
        }
        solver.update(keys)
        env = solver.pop("ENV", {"DEVICE": "cpu"})
        solver = {key: value for key, value in solver.items() if value is not None}
        return {"PLUGINS": [str(TASKS)], "ENV": env, "SOLVER": solver}

    return make


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """Reads what a TraceRecorder with `FILE: <tmp_path>/trace.jsonl` wrote."""

    def read() -> list[dict[str, Any]]:
        lines = (tmp_path / "trace.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return read


@pytest.fixture
def recorder(tmp_path: Path) -> dict[str, Any]:
    """The section of a TraceRecorder that writes what `recorded` reads."""
    return {"NAME": "TraceRecorder", "FILE": str(tmp_path / "trace.jsonl")}


def pytest_addoption(parser: pytest.Parser) -> None:
    """How hard tests/faults tries."""
    parser.addoption("--kills", type=int, default=20, help="kills of tests/faults (the long form: 200)")
    parser.addoption("--kills-seed", type=int, default=0, help="seed of the instants of these kills")
