"""Toy runs whose model offers data, and a look at what is written of it."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from scepter_core import (
    DATASETS,
    HOOKS,
    MODELS,
    SOLVERS,
    Hook,
    HookConfig,
    Probing,
    TrainValSolver,
    hookimpl,
    run,
)

torch.set_num_threads(1)


@MODELS.register_class()
class ProbeTestModel(Probing, nn.Module):
    """loss = w · mean(x) with dropout. What it offers in each step is said by the function `offer(model, x, loss)`."""

    offer: Any = None

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(()))
        self.layer = nn.Sequential(nn.Dropout(0.5), ProbeTestPart())
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        loss = self.w * self.layer(x).mean()
        if type(self).offer is not None:
            type(self).offer(self, x, loss)
        return {"loss": loss}


class ProbeTestPart(Probing, nn.Module):
    """A part that may offer something, too."""

    def forward(self, x):
        return x


@DATASETS.register_class()
class ProbeTestData(torch.utils.data.Dataset):
    def __init__(self, size: int = 10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.full((3,), float(index + 1))}


@SOLVERS.register_class()
class ProbeTestSolver(TrainValSolver):
    """Offers what the solver sees: the batch."""

    def run_step_train(self, batch_data, batch_idx=0, step=None, rank=None):
        outputs = super().run_step_train(batch_data, batch_idx, step, rank)
        self.register_probe({"batch": batch_data["x"], "by": "solver", "losses": outputs["loss"].expand(2)})
        return outputs


@HOOKS.register_class()
class ProbeTestBackward(Hook):
    role = "backward"

    def after_iter(self, solver):
        if solver.is_train_mode:
            solver.loss.backward()
            solver.optimizer.step()
            solver.optimizer.zero_grad()


@HOOKS.register_class()
class ProbeTestAlive(Hook):
    """`alive`: how many tensors the model has offered so far are still there, at the start of each step."""

    tensors: list[weakref.ref] = []

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger)
        self.alive: list[int] = []
        type(self).tensors = []

    def before_iter(self, solver):
        gc.collect()
        self.alive.append(sum(tensor() is not None for tensor in self.tensors))


@HOOKS.register_class()
class ProbeTestOffered(Hook):
    """`offered`: what every step offered, as it is."""

    class Config(HookConfig):
        priority: int = 900

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger)
        self.offered: list[Any] = []

    def after_iter(self, solver):
        self.offered.append(solver.probe_data)


@HOOKS.register_class()
class ProbeTestFail(Hook):
    """From this hook's before_solve on, nothing can be written below FOLDER."""

    class Config(HookConfig):
        folder: str

    @hookimpl(trylast=True)
    def before_solve(self, solver):
        Path(self.cfg.FOLDER).parent.mkdir(parents=True, exist_ok=True)
        Path(self.cfg.FOLDER).write_text("a file in the folder's place")


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")


class Probed:
    """What a run left."""

    def __init__(self, solver, folder, lines):
        self.solver, self.folder, self.lines = solver, folder, lines

    @property
    def dumps(self):
        """The folders below probe, as `train/step_4`."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.glob("*/*"))

    def files(self, dump="train/step_1"):
        return sorted(path.name for path in (self.folder / dump).iterdir())

    def index(self, dump="train/step_1"):
        text = (self.folder / dump / "probe.json").read_text(encoding="utf-8")
        return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    def array(self, name, dump="train/step_1"):
        return np.load(self.folder / dump / name, allow_pickle=False)

    def picture(self, name, dump="train/step_1"):
        return Image.open(self.folder / dump / name)

    def hook(self, name="ProbeDataHook", mode="train"):
        return next(hook for hook in self.solver.hooks_dict[mode] if hook.name == name)


@pytest.fixture
def probe(tmp_path, monkeypatch):
    """probe(offer, …) → Probed. `offer(model, x, loss)` is called in every forward; a dict is registered as it is."""

    def go(offer=None, *, interval=1, size=10, epochs=1, hooks=(), eval_hooks=None, seen=True, folder="run", **keys):
        if isinstance(offer, dict):
            values = offer
            offer = lambda model, x, loss: model.register_probe(values)  # noqa: E731
        monkeypatch.setattr(ProbeTestModel, "offer", offer)
        own = [{"NAME": "ProbeDataHook", "PROB_INTERVAL": interval}] if seen else []
        data = {"NAME": "ProbeTestData", "SIZE": size, "SHUFFLE": False}
        solver = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(tmp_path / folder),
            "MAX_EPOCHS": epochs,
            "TRAIN_DATA": data,
            "MODEL": {"NAME": "ProbeTestModel"},
            "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 0.01},
            "TRAIN_HOOKS": [{"NAME": "ProbeTestBackward"}, *own, *hooks],
        }
        if eval_hooks is not None:
            solver |= {"EVAL_DATA": {**data, "SIZE": 4}, "EVAL_HOOKS": eval_hooks}
        logger, lines = logging.Logger("test"), Lines()
        logger.addHandler(lines)
        done = run({"ENV": {"DEVICE": "cpu"}, "SOLVER": solver | keys}, logger=logger)
        return Probed(done, tmp_path / folder / "probe", lines.lines)

    return go


@pytest.fixture
def one(probe):
    """one(values) → Probed: a single step in which the model offers `values`."""
    return lambda values, **keys: probe(values, size=1, **keys)
