"""Toy models with every kind of weights, and runs that export them."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from scepter_core import DATASETS, HOOKS, MODELS, SOLVERS, Hook, HookConfig, TrainValSolver, hookimpl, run

torch.set_num_threads(1)

READ = """
import json, sys
from safetensors import safe_open
with safe_open(sys.argv[1], framework="pt") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
    print(json.dumps({
        "metadata": file.metadata(),
        "values": {name: value.tolist() for name, value in tensors.items()},
        "dtypes": {name: str(value.dtype) for name, value in tensors.items()},
    }, default=str))
"""


@MODELS.register_class()
class ExportLine(nn.Module):
    """loss = w · mean(x)."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return {"loss": self.w * x.mean()}


@MODELS.register_class()
class ExportTied(nn.Module):
    """An embedding whose weight is the output layer's too."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return {"loss": self.head(self.embedding(x.long())).square().mean()}


class ExtraState(nn.Module):
    """Has state that is no tensor."""

    def __init__(self):
        super().__init__()
        self.words = ["as", "made"]

    def get_extra_state(self):
        return {"words": self.words}

    def set_extra_state(self, state):
        self.words = state["words"]


@MODELS.register_class()
class ExportOdd(nn.Module):
    """Weights of every layout and kind."""

    def __init__(self):
        super().__init__()
        big = torch.arange(10.0)
        self.w = nn.Parameter(torch.zeros(()))
        self.transposed = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        self.conv = nn.Conv2d(2, 3, 3, bias=False).to(memory_format=torch.channels_last)
        self.bf16 = nn.Parameter(torch.tensor([1.5, -2.25], dtype=torch.bfloat16))
        self.register_buffer("slice", big[3:6])
        self.register_buffer("overlapping", big[5:8])
        self.register_buffer("every_second", big[::2])
        self.register_buffer("expanded", torch.tensor([7.0]).expand(3))
        self.register_buffer("count", torch.tensor(5))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("empty_too", torch.zeros(0, 3))
        self.register_buffer("complex", torch.tensor([1 + 2j], dtype=torch.complex64))
        self.register_buffer("conjugate", self.complex.conj())  # the same memory, read in another way
        self.register_buffer("hidden", torch.ones(1), persistent=False)
        self.extra = ExtraState()

    def forward(self, x):
        return {"loss": self.w * x.mean()}


@MODELS.register_class()
class ExportModule(nn.Module):
    """Has a child that is called `module`."""

    def __init__(self):
        super().__init__()
        self.module = nn.Linear(1, 1)

    def forward(self, x):
        return {"loss": self.module(x).mean()}


@SOLVERS.register_class()
class ExportSolver(TrainValSolver):
    """Exports what is asked of it: whole state dicts, other things than tensors, metadata of any type."""

    def save_safetensors(self):
        weights: dict[str, Any] = {f"net.{name}": value for name, value in self.model.state_dict().items()}
        weights["conj"] = torch.tensor([1 + 2j]).conj()
        weights["double"] = torch.ones(2, dtype=torch.complex128)
        weights["sparse"] = torch.eye(2).to_sparse()
        weights["name"] = "no tensor"
        return weights, {"format": "pt", "step": self.train_steps, "epoch": self.epoch, "loss": None, "rate": 0.5}


@DATASETS.register_class()
class ExportData(torch.utils.data.Dataset):
    def __init__(self, size: int = 4):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.ones(1)}


@HOOKS.register_class()
class ExportBackward(Hook):
    role = "backward"

    def after_iter(self, solver):
        if solver.is_train_mode:
            solver.loss.backward()
            solver.optimizer.step()
            solver.total_updates += 1
            solver.optimizer.zero_grad()


@HOOKS.register_class()
class ExportTrouble(Hook):
    """Fails, or is asked to end, in step AT; saves the state after step SAVE_AT, and loads LOAD."""

    loads_checkpoints = True

    class Config(HookConfig):
        priority: int = 150
        fail_at: int = 0
        stop_at: int = 0
        stop_early: bool = False
        fail_in_eval: bool = False
        save_at: int = 0
        save: str = ""
        load: str = ""

    @hookimpl(tryfirst=True)
    def before_solve(self, solver):
        if self.cfg.LOAD:
            solver.load_checkpoint(torch.load(self.cfg.LOAD, weights_only=True))
        if self.cfg.STOP_EARLY:
            solver.request_stop(15)

    def after_iter(self, solver):
        if not solver.is_train_mode:
            if self.cfg.FAIL_IN_EVAL:
                raise KeyError("as asked")
            return
        if solver.train_steps == self.cfg.FAIL_AT:
            raise KeyError("as asked")
        if solver.train_steps == self.cfg.STOP_AT:
            solver.request_stop(15)

    @hookimpl(trylast=True)
    def after_epoch(self, solver):
        if solver.is_train_mode and solver.train_steps == self.cfg.SAVE_AT:
            torch.save(solver.save_checkpoint(), self.cfg.SAVE)


@HOOKS.register_class()
class ExportLater(Hook):
    """Changes the weights after everyone else: at priority 900."""

    class Config(HookConfig):
        priority: int = 900

    def after_iter(self, solver):
        with torch.no_grad():
            solver.model.w.fill_(float(solver.train_steps))


@HOOKS.register_class()
class ExportFileLimit(Hook):
    """From step 3 on, no file may grow beyond 50 bytes."""

    def before_iter(self, solver):
        if solver.train_steps == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


class Lines(logging.Handler):
    """Keeps the warnings that a run logs."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())


class Job:
    """A run that exports, below a folder of its own."""

    def __init__(self, folder: Path):
        self.work_dir = folder / "run"
        self.folder = self.work_dir / "safetensors"
        self.warnings: list[str] = []

    def run(
        self, model="ExportLine", *, size=10, epochs=1, rate=1.0, trouble=None, hooks=(), eval_hooks=(), solver=None,
        **keys,
    ):  # fmt: skip
        data = {"NAME": "ExportData", "SIZE": size, "SHUFFLE": False}
        root = {
            "ENV": {"DEVICE": "cpu"},
            "SOLVER": {
                "NAME": "TrainValSolver",
                "WORK_DIR": str(self.work_dir),
                "MAX_EPOCHS": epochs,
                "TRAIN_DATA": data,
                "MODEL": {"NAME": model},
                "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": rate},
                "TRAIN_HOOKS": [
                    {"NAME": "ExportBackward"},
                    *([{"NAME": "ExportTrouble", **trouble}] if trouble else []),
                    {"NAME": "SafetensorsHook", "SAVE_NAME_PREFIX": "m", **keys},
                    *hooks,
                ],
                "EVAL_HOOKS": list(eval_hooks),
                **(solver or {}),
            },
        }
        logger, lines = logging.Logger("test"), Lines()
        logger.addHandler(lines)
        self.warnings = lines.lines
        return run(root, logger=logger)

    @property
    def names(self):
        return {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()

    def path(self, step):
        return self.folder / f"m-{step}.safetensors"

    def read(self, step):
        """What a python of its own finds in the file: metadata, values, dtypes."""
        command = [sys.executable, "-c", READ, str(self.path(step))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture
def models():
    """The classes of the toy models, by name."""
    return {kind.__name__: kind for kind in (ExportLine, ExportTied, ExportOdd, ExportModule)}
