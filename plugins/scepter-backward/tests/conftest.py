"""A toy run whose gradient is its data: the final weight shows how many updates ran, and with which gradient."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from scepter_core import DATASETS, HOOKS, MODELS, Hook, run

torch.set_num_threads(1)  # tensors of a few numbers: more threads only get in each other's way


@MODELS.register_class()
class BackwardTestProbe(torch.nn.Module):
    """loss = w · mean(x) + v · mean(y): the gradient of w is the batch's mean.

    A sample with `poison` 1 has a finite loss and a gradient that is NaN. KIND spoils what forward returns.
    """

    def __init__(self, kind: str = "plain"):
        super().__init__()
        self.kind = kind
        self.w = torch.nn.Parameter(torch.zeros(()))
        self.v = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[str] = []

    def forward(self, x, y=None, poison=None):
        loss = self.w * x.mean()
        if y is not None:
            loss = loss + self.v * y.mean()
        if poison is not None and bool(poison.any()):
            loss = loss + torch.sqrt(
                self.w * 0.0
            )  # the root's slope at 0 is infinite, and 0 times that is NaN
        kinds = {
            "plain": {"loss": loss},
            "no loss": {"logits": loss, "score": 1.0},
            "nothing": {},
            "number": {"loss": 3.5},
            "one element": {"loss": loss.reshape(1, 1)},
            "vector": {"loss": torch.stack([loss, loss])},
            "detached": {"loss": loss.detach()},
        }
        return kinds[self.kind]


@MODELS.register_class()
class BackwardTestMatmul(torch.nn.Module):
    """Notes the type in which a matrix product comes out, which autocast decides."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.types: list[torch.dtype] = []

    def forward(self, x):
        result = self.layer(x.reshape(-1, 1).expand(-1, 4))
        self.types.append(result.dtype)
        return {"loss": result.float().pow(2).mean()}


@DATASETS.register_class()
class BackwardTestData(Dataset):
    def __init__(self, x: list[float], y: list[float] | None = None, poison: list[int] | None = None):
        self.columns = {"x": x, "y": y, "poison": poison}

    def __len__(self):
        return len(self.columns["x"])

    def __getitem__(self, index):
        return {
            name: torch.tensor(column[index]) for name, column in self.columns.items() if column is not None
        }


@DATASETS.register_class()
class BackwardTestStream(IterableDataset):
    """Has no length."""

    def __init__(self, x: list[float]):
        self.x = x

    def __iter__(self):
        return iter([{"x": torch.tensor(value)} for value in self.x])


@HOOKS.register_class()
class BackwardTestRecorder(Hook):
    """Notes BackwardHook's events with the counters and the gradients of that moment."""

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger=logger)
        self.notes: list[tuple[Any, ...]] = []

    def _note(self, event, solver):
        model = solver.model
        grad = None if model.w.grad is None else float(model.w.grad)
        self.notes.append((event, solver.train_steps, solver.total_updates, grad, float(model.w.detach())))

    def after_backward(self, solver):
        self._note("after_backward", solver)

    def after_step(self, solver):
        self._note("after_step", solver)

    def after_iter(self, solver):
        self._note("after_iter", solver)


class Lines(logging.Handler):
    """Keeps the lines that a run logs."""

    def __init__(self):
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def of(self, level):
        return [line for line in self.lines if line.startswith(level)]


class Job:
    """One toy run's configuration, and what it logs."""

    def __init__(self, config, log, logger):
        self.config, self.log, self.logger = config, log, logger

    def run(self, *overrides):
        return run(self.config, overrides, logger=self.logger)


@pytest.fixture
def job(tmp_path: Path):
    """job([x, …], BackwardHook's keys…, SOLVER={…}) → Job: SGD of rate 1, in order, one sample a batch."""

    def make(
        x, *, y=None, poison=None, batch_size=1, data="BackwardTestData", model="BackwardTestProbe", kind=None,
        optimizer=None, recorder=False, hooks=(), solver=None, **hook,
    ):  # fmt: skip
        columns = {"X": x, "Y": y, "POISON": poison}
        section = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(tmp_path / "run"),
            "MAX_EPOCHS": 1,
            "TRAIN_DATA": {
                "NAME": data,
                "BATCH_SIZE": batch_size,
                "SHUFFLE": False,
                **{key: column for key, column in columns.items() if column is not None},
            },
            "MODEL": {"NAME": model, **({"KIND": kind} if kind else {})},
            "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 1.0, **(optimizer or {})},
            "TRAIN_HOOKS": [
                {"NAME": "BackwardHook", **hook},
                *([{"NAME": "BackwardTestRecorder", "PRIORITY": 50}] if recorder else []),
                *hooks,
            ],
        }
        section |= solver or {}
        section = {key: value for key, value in section.items() if value is not ...}
        logger, log = logging.Logger("test"), Lines()
        logger.addHandler(log)
        return Job({"ENV": {"DEVICE": "cpu"}, "SOLVER": section}, log, logger)

    return make
