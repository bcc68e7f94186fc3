"""A toy run: two parameter groups, steps of their own, and a record of every rate that a step used."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from torch.utils.data import IterableDataset

from scepter_core import DATASETS, HOOKS, LR_SCHEDULERS, MODELS, Hook, HookConfig, hookimpl, run


@MODELS.register_class()
class LrTestModel(torch.nn.Module):
    """Two weights; in eval the loss is read from a list, one entry an eval."""

    def __init__(self, eval_losses: list[float] | None = None):
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(()))
        self.second = torch.nn.Parameter(torch.zeros(()))
        self.eval_losses = list(eval_losses or [])

    def forward(self, x):
        if self.training or not self.eval_losses:
            return {"loss": (self.first + self.second) * x.mean()}
        return {"loss": torch.tensor(self.eval_losses.pop(0))}


@DATASETS.register_class()
class LrTestData(torch.utils.data.Dataset):
    def __init__(self, size: int):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index >= self.size:
            raise IndexError(index)
        return {"x": torch.tensor(1.0)}


@DATASETS.register_class()
class LrTestStream(IterableDataset):
    def __init__(self, size: int):
        self.size = size

    def __iter__(self):
        return iter([{"x": torch.tensor(1.0)}] * self.size)


@LR_SCHEDULERS.register_class()
class LrTestFading(torch.optim.lr_scheduler.LRScheduler):
    """Made from the last rate: times FACTOR at the first step, FACTOR² at the second, …; it has no closed form."""

    def __init__(self, optimizer: torch.optim.Optimizer, factor: float = 0.5, last_epoch: int = -1):
        self.factor = factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [group["lr"] * self.factor**self.last_epoch for group in self.optimizer.param_groups]


@HOOKS.register_class()
class LrTestBackward(Hook):
    role = "backward"

    def after_iter(self, solver):
        solver.loss.backward()
        if solver.window_closes:
            solver.optimizer.step()
            solver.total_updates += 1
            solver.optimizer.zero_grad()


@HOOKS.register_class()
class LrTestRecorder(Hook):
    """`rows`: (epoch, rates of the groups, momentum of the first) of every training step."""

    class Config(HookConfig):
        priority: int = 1000

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger)
        self.rows = []

    def before_iter(self, solver):
        groups = solver.optimizer.param_groups
        self.rows.append((solver.epoch, [group["lr"] for group in groups], groups[0]["momentum"]))


@HOOKS.register_class()
class LrTestCheckpoint(Hook):
    """Loads LOAD, and keeps a copy of the state after step SAVE_AT, or after the epoch's end if that comes later."""

    class Config(HookConfig):
        priority: int = 300
        load: str | None = None
        save: str | None = None
        save_at: int = 0

    @hookimpl(tryfirst=True)
    def before_solve(self, solver):
        if self.cfg.LOAD:
            solver.load_checkpoint(torch.load(self.cfg.LOAD, weights_only=True))

    @hookimpl(trylast=True)
    def after_iter(self, solver):
        if self.cfg.SAVE and solver.train_steps == self.cfg.SAVE_AT:
            torch.save(copy.deepcopy(solver.save_checkpoint()), self.cfg.SAVE)

    @hookimpl(trylast=True)
    def after_epoch(self, solver):
        if self.cfg.SAVE and solver.train_steps == self.cfg.SAVE_AT:
            torch.save(copy.deepcopy(solver.save_checkpoint()), self.cfg.SAVE)


class Rates:
    """What a toy run used, step by step."""

    def __init__(self, solver):
        self.solver = solver
        recorder = next(hook for hook in solver.hooks_dict["train"] if isinstance(hook, LrTestRecorder))
        self.first = [rates[0] for _, rates, _ in recorder.rows]
        self.second = [rates[-1] for _, rates, _ in recorder.rows]
        self.momentum = [momentum for _, _, momentum in recorder.rows]
        self.epochs = [epoch for epoch, _, _ in recorder.rows]

    def by_epoch(self):
        """The first group's rate in each epoch; fails where it changes within one."""
        found = {}
        for epoch, rate in zip(self.epochs, self.first, strict=True):
            assert found.setdefault(epoch, rate) == rate
        return list(found.values())


@pytest.fixture
def train(tmp_path: Path):
    """train(hook={...}, scheduler={...}, batches=…, epochs=…, …) → Rates."""

    def go(
        hook=None,
        scheduler=None,
        *,
        batches=4,
        epochs=1,
        rate=1.0,
        second=None,
        load=None,
        save_at=0,
        eval_losses=None,
        data="LrTestData",
        **solver_keys,
    ):
        optimizer = {"NAME": "SGD", "LEARNING_RATE": rate, "MOMENTUM": 0.9}
        if second is not None:
            optimizer["PARAM_GROUPS"] = [{"PATTERN": "second", "LEARNING_RATE": second}]
        checkpoint = {"NAME": "LrTestCheckpoint", "SAVE_AT": save_at}
        checkpoint |= {"LOAD": str(load)} if load else {}
        checkpoint |= {"SAVE": str(tmp_path / f"{save_at}.pth")} if save_at else {}
        hooks = [{"NAME": "LrTestBackward"}, {"NAME": "LrTestRecorder"}, checkpoint]
        solver = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(tmp_path / "run"),
            "MAX_EPOCHS": epochs,
            "TRAIN_DATA": {"NAME": data, "SIZE": batches},
            "MODEL": {"NAME": "LrTestModel"},
            "OPTIMIZER": optimizer,
            "TRAIN_HOOKS": [*hooks, {"NAME": "LrHook", **(hook or {})}],
            **solver_keys,
        }
        if scheduler is not None:
            solver["LR_SCHEDULER"] = scheduler
        if eval_losses is not None:
            solver["EVAL_DATA"] = {"NAME": "LrTestData", "SIZE": 1}
            solver["MODEL"]["EVAL_LOSSES"] = eval_losses
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps({"ENV": {"DEVICE": "cpu"}, "SOLVER": solver}))  # JSON is YAML
        return Rates(run(config))

    return go
