"""A small run whose hooks write down every event, under either engine."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from scepter_core import DATASETS, HOOKS, MODELS, Hook, HookConfig, hookimpl, run

torch.set_num_threads(1)


@MODELS.register_class()
class LightningTestNet(nn.Module):
    """Linear, BatchNorm, Dropout, Linear: what a loop can disturb."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))

    def forward(self, x):
        return {"loss": (self.net(x) - 1).square().mean()}


@DATASETS.register_class()
class LightningTestRows(torch.utils.data.Dataset):
    """Rows of noise, drawn anew each time from every stream."""

    def __init__(self, size: int = 10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.tensor([random.random() + index, float(np.random.rand()), float(torch.rand(()))])}


@DATASETS.register_class()
class LightningTestStream(torch.utils.data.IterableDataset):
    """Ten rows, front to back, without a length."""

    def __iter__(self):
        for index in range(10):
            yield {"x": torch.tensor([float(index), 1.0, 2.0])}


@HOOKS.register_class()
class LightningTestBackward(Hook):
    """Backward and the update where a window closes; the rate falls with each update."""

    role = "backward"

    def after_iter(self, solver):
        if not solver.is_train_mode:
            return
        (solver.loss / solver.window_size).backward()
        if solver.window_closes:
            solver.optimizer.param_groups[0]["lr"] = 0.1 / (1 + solver.total_updates)
            solver.optimizer.step()
            solver.optimizer.zero_grad()
            solver.total_updates += 1


def _note(solver, event, *more):
    counters = (solver.mode, solver.epoch, solver.iter, solver.total_iter, solver.train_steps, solver.total_updates)
    flags = (solver.model.training, torch.is_grad_enabled(), solver.is_last_iter)
    solver.__dict__.setdefault("rows", []).append((event, *counters, *flags, *more))


@HOOKS.register_class()
class LightningTestTrace(Hook):
    """Every event, into `solver.rows`: with the mode, the counters, and what the streams of random numbers give."""

    class Config(HookConfig):
        priority: int = 100

    def before_solve(self, solver):
        _note(solver, "before_solve")

    def after_solve(self, solver):
        _note(solver, "after_solve")

    def before_epoch(self, solver):
        _note(solver, "before_epoch")

    def after_epoch(self, solver):
        _note(solver, "after_epoch")

    def before_all_iter(self, solver):
        _note(solver, "before_all_iter")

    def after_all_iter(self, solver):
        _note(solver, "after_all_iter")

    def before_iter(self, solver):
        _note(solver, "before_iter", solver.window_opens, solver.window_closes, solver.batch_size)

    def after_iter(self, solver):
        _note(solver, "after_iter", float(solver.iter_outputs["loss"].detach()), float(torch.rand(())))

    def on_metrics(self, solver, mode, metrics):
        _note(solver, "on_metrics", mode, dict(metrics))

    def on_exception(self, solver, error):
        _note(solver, "on_exception", type(error).__name__, str(error))


@HOOKS.register_class()
class LightningTestState(Hook):
    """Saves the state after every training step (`{step}.pth`) to FOLDER; loads LOAD."""

    loads_checkpoints = True

    class Config(HookConfig):
        priority: int = 300
        folder: str | None = None
        load: str | None = None

    @hookimpl(tryfirst=True)
    def before_solve(self, solver):
        if self.cfg.LOAD:
            solver.load_checkpoint(torch.load(self.cfg.LOAD, weights_only=True))

    @hookimpl(trylast=True)
    def after_iter(self, solver):
        if self.cfg.FOLDER and solver.is_train_mode:
            torch.save(solver.save_checkpoint(), Path(self.cfg.FOLDER) / f"{solver.train_steps}.pth")


@HOOKS.register_class()
class LightningTestAct(Hook):
    """Calls what a test put into `acts` at the event and the step: `acts["after_iter", 2] = function of solver`."""

    acts: dict = {}

    class Config(HookConfig):
        priority: int = 50

    def _at(self, event, solver):
        self.acts.get((event, solver.train_steps), lambda solver: None)(solver)

    def before_epoch(self, solver):
        if solver.is_train_mode:
            self._at("before_epoch", solver)

    def before_all_iter(self, solver):
        if solver.is_train_mode:
            self._at("before_all_iter", solver)

    def after_all_iter(self, solver):
        if solver.is_train_mode:
            self._at("after_all_iter", solver)

    def before_iter(self, solver):
        if solver.is_train_mode:
            self._at("before_iter", solver)

    def after_iter(self, solver):
        if solver.is_train_mode:
            self._at("after_iter", solver)

    def after_epoch(self, solver):
        if solver.is_train_mode:
            self._at("after_epoch", solver)

    def on_exception(self, solver, error):
        self._at("on_exception", solver)


@pytest.fixture
def acts(monkeypatch):
    """What LightningTestAct does, by event and training step."""
    monkeypatch.setattr(LightningTestAct, "acts", {})
    return LightningTestAct.acts


@pytest.fixture
def config(tmp_path):
    """config(use_pl, **keys of SOLVER): 10 rows in batches of 4, so 3 steps an epoch, and 2 epochs."""

    def make(use_pl, *, load=None, save=False, **keys):
        state = {"NAME": "LightningTestState", **({"LOAD": str(load)} if load else {})}
        folder = tmp_path / ("lightning" if use_pl else "native")
        folder.mkdir(exist_ok=True)
        state |= {"FOLDER": str(folder)} if save else {}
        hooks = [{"NAME": f"LightningTest{name}"} for name in ("Backward", "Act", "Trace")]
        solver = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(folder / "run"),
            "MAX_EPOCHS": 2,
            "TRAIN_DATA": {"NAME": "LightningTestRows", "BATCH_SIZE": 4},
            "MODEL": {"NAME": "LightningTestNet"},
            "OPTIMIZER": {"NAME": "AdamW", "LEARNING_RATE": 0.1},
            "TRAIN_HOOKS": [*hooks, state],
            **keys,
        }
        for mode in ("EVAL", "TEST"):
            if f"{mode}_DATA" in keys:
                solver[f"{mode}_HOOKS"] = [{"NAME": "LightningTestTrace"}]
        solver = {key: value for key, value in solver.items() if value is not None}
        return {"ENV": {"DEVICE": "cpu", "USE_PL": use_pl}, "SOLVER": solver}

    return make


@pytest.fixture
def train(config):
    """train(use_pl, …) → the solver, its trace and its weights, at the run's end."""

    def go(use_pl, *, mode=None, **keys):
        solver = run(config(use_pl, **keys), mode=mode, logger=logging.Logger("test"))
        return SimpleNamespace(solver=solver, rows=solver.rows, weights=weights_of(solver))

    return go


def weights_of(solver):
    return {name: value.tolist() for name, value in solver.model.state_dict().items()}
