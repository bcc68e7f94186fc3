"""Training as SCEPTER's loop does it, in plain torch, and files of its layouts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from scepter_core.cli import main

TASK = Path(__file__).with_name("migration_task.py")


def _task() -> Any:
    from scepter_core.discovery import import_local

    return import_local(str(TASK), TASK.parent)


@dataclass
class PlainRun:
    """An epoch at a time of the task: three batches of four rows."""

    optimizer_name: str
    options: dict[str, Any]
    epochs: int = 0
    steps: int = 0
    model: Any = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    scheduler: Any = field(init=False)

    def __post_init__(self) -> None:
        task = _task()
        self.rows, self.model = task.MigrationRows(), task.MigrationNet()
        kind = getattr(torch.optim, self.optimizer_name)
        self.optimizer = kind(self.model.parameters(), **self.options)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)

    def train(self, epochs: int) -> PlainRun:
        for _ in range(epochs):
            for begin in range(0, 12, 4):
                batch = default_collate([self.rows[index] for index in range(begin, begin + 4)])
                self.model(**batch)["loss"].backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.steps += 1
            self.scheduler.step()
            self.epochs += 1
        return self

    def by_epochs(self, **more: Any) -> dict[str, Any]:
        """What TrainValSolver saves at an epoch's end."""
        return {
            "epoch": self.epochs,
            "total_iters": defaultdict(int, train=self.steps, eval=self.epochs),
            "state_dict": self.model.state_dict(),
            "checkpoint": self.optimizer.state_dict(),
            "lr_scheduler": self.scheduler.state_dict(),
            **more,
        }

    def by_steps(self, **more: Any) -> dict[str, Any]:
        """What the step-wise solvers save."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "scaler": {}, **more}


@pytest.fixture
def plain_run() -> type[PlainRun]:
    return PlainRun


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """The same training for the engine; keyword arguments are keys of SOLVER."""

    def make(optimizer: dict[str, Any], **keys: Any) -> dict[str, Any]:
        return {
            "PLUGINS": [str(TASK)],
            "ENV": {"DEVICE": "cpu"},
            "SOLVER": {
                "NAME": "TrainValSolver",
                "WORK_DIR": str(tmp_path / "run"),
                "MAX_EPOCHS": 4,
                "TRAIN_DATA": {"NAME": "MigrationRows", "BATCH_SIZE": 4, "SHUFFLE": False},
                "MODEL": {"NAME": "MigrationNet"},
                "OPTIMIZER": optimizer,
                "LR_SCHEDULER": {"NAME": "StepLR", "STEP_SIZE": 1, "GAMMA": 0.5},
                "TRAIN_HOOKS": [
                    {"NAME": "BackwardHook"},
                    {"NAME": "LrHook", "WARMUP_FUNC": None},
                    {"NAME": "CheckpointHook", "ASYNC": False},
                ],
                **keys,
            },
        }

    return make


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def convert(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `scepter convert` in this process."""

    def go(*arguments: object) -> Ended:
        capsys.readouterr()
        status = main(["convert", *map(str, arguments)])
        said = capsys.readouterr()
        return Ended(status, said.out, said.err)

    return go
