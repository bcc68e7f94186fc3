"""A run that notes which samples it saw, in which order."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler

from scepter_core import (
    DATASETS,
    HOOKS,
    MODELS,
    SAMPLERS,
    SOLVERS,
    Hook,
    HookConfig,
    TrainValSolver,
    hookimpl,
    run,
)

torch.set_num_threads(1)


@MODELS.register_class()
class SamplerTestModel(nn.Module):
    """Notes the samples of every batch: `seen` in training."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))
        self.seen: list[list[int]] = []

    def forward(self, x):
        if self.training:
            self.seen.append(x.tolist())
        return {"loss": self.w * x.float().mean()}


@DATASETS.register_class()
class SamplerTestData(torch.utils.data.Dataset):
    def __init__(self, size: int = 8):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": index}


@SAMPLERS.register_function()
def BatchesOfDistributed(dataset, rank: int = 0, size: int = 2):
    return BatchSampler(DistributedSampler(dataset, num_replicas=2, rank=rank, seed=0), size, False)


@SAMPLERS.register_function()
def BatchesOfBatches(dataset):
    """A batch sampler within a batch sampler."""
    return Regrouping(BatchSampler(DistributedSampler(dataset, num_replicas=2, rank=0, seed=0), 2, False))


class Regrouping(BatchSampler):
    def __init__(self, batch_sampler):
        self.batch_sampler = batch_sampler
        self.epochs: list[int] = []

    def __len__(self):
        return len(self.batch_sampler)

    def __iter__(self):
        return iter(self.batch_sampler)

    def set_epoch(self, epoch):
        # told last, after the sampler within: what it says stands
        self.epochs.append(self.batch_sampler.sampler.epoch)


@SAMPLERS.register_class()
class NotingSampler(Sampler[int]):
    """In order; notes the epochs that it is told."""

    def __init__(self, data_source):
        self.size = len(data_source)
        self.told: list[int] = []

    def set_epoch(self, epoch):
        self.told.append(epoch)

    def __len__(self):
        return self.size

    def __iter__(self):
        return iter(range(self.size))


@SOLVERS.register_class()
class OwnLoader(TrainValSolver):
    """Brings a plain torch DataLoader."""

    kind = "sampler"

    def construct_data(self):
        super().construct_data()
        dataset = self.datas["train"].dataset
        sampler = DistributedSampler(dataset, num_replicas=2, rank=0, seed=0)
        if self.kind == "sampler":
            self.datas["train"] = DataLoader(dataset, batch_size=2, sampler=sampler)
        elif self.kind == "batch_sampler":
            self.datas["train"] = DataLoader(dataset, batch_sampler=BatchSampler(sampler, 2, False))
        elif self.kind == "random":
            self.datas["train"] = DataLoader(dataset, batch_size=2, sampler=RandomSampler(dataset))
        else:
            self.datas["train"] = [{"x": torch.tensor([1])}, {"x": torch.tensor([2])}]


@HOOKS.register_class()
class SamplerTestBackward(Hook):
    role = "backward"

    def after_iter(self, solver):
        if solver.is_train_mode:
            solver.loss.backward()
            solver.optimizer.step()
            solver.optimizer.zero_grad()


@HOOKS.register_class()
class SamplerTestState(Hook):
    """Saves the state after every training step (`{step}.pth`) and epoch (`epoch-{n}.pth`) to FOLDER; loads LOAD."""

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
        self.save(solver, f"{solver.train_steps}.pth")

    @hookimpl(trylast=True)
    def after_epoch(self, solver):
        self.save(solver, f"epoch-{solver.epoch}.pth")

    def save(self, solver, name):
        if self.cfg.FOLDER and solver.is_train_mode:
            torch.save(solver.save_checkpoint(), Path(self.cfg.FOLDER) / name)


@pytest.fixture
def train(tmp_path):
    """train(SAMPLER section, …) → the solver at its end; `solver.model.seen` has the batches."""

    def go(sampler=None, *, epochs=3, batch_size=1, load=None, save=False, hooks=({"NAME": "DistSamplerHook"},), **keys):
        data = {"NAME": "SamplerTestData", "BATCH_SIZE": batch_size, **({"SAMPLER": sampler} if sampler else {})}
        state = {"NAME": "SamplerTestState", **({"LOAD": str(tmp_path / load)} if load else {})}
        state |= {"FOLDER": str(tmp_path)} if save else {}
        solver = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(tmp_path / "run"),
            "MAX_EPOCHS": epochs,
            "TRAIN_DATA": data,
            "MODEL": {"NAME": "SamplerTestModel"},
            "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 0.1},
            "TRAIN_HOOKS": [{"NAME": "SamplerTestBackward"}, state, *hooks],
            **keys,
        }
        return run({"ENV": {"DEVICE": "cpu"}, "SOLVER": solver}, logger=logging.Logger("test"))

    return go


@pytest.fixture
def own_loader(monkeypatch):
    """own_loader(kind): the loader that solvers of the kind OwnLoader bring."""
    return lambda kind: monkeypatch.setattr(OwnLoader, "kind", kind)
