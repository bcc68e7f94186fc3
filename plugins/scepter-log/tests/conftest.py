"""A toy run whose loss is what its data says, and the means to look at what was logged."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest
import torch

from scepter_core import DATASETS, HOOKS, MODELS, Hook, HookConfig, hookimpl, run


@MODELS.register_class()
class LogTestModel(torch.nn.Module):
    """loss: the batch's mean. KIND adds outputs of other kinds."""

    def __init__(self, kind: str = "plain"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.register_buffer("seen", torch.zeros(()))
        self.kind, self.calls = kind, 0

    def forward(self, x):
        loss = x.mean() + 0 * self.weight
        if self.kind == "odd":
            others = {
                "logits": torch.zeros(4, 3),
                "name": "abc",
                "nothing": None,
                "list": [0.1],
                "flag": True,
            }
            return {"loss": loss, "count": 3, **others}
        if self.kind == "wild":
            self.calls += 1
            return {"loss": loss, "wild": (math.nan, math.inf, -math.inf)[self.calls - 1]}
        if self.kind == "buffer":  # the very same tensor at every step
            self.seen += 1
            return {"loss": loss, "seen": self.seen}
        if self.kind == "sometimes":
            self.calls += 1
            return {"loss": loss, "extra": loss * 10} if self.calls % 2 else {"loss": loss}
        return {"loss": loss}


@DATASETS.register_class()
class LogTestData(torch.utils.data.Dataset):
    def __init__(self, values: list[float]):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return {"x": torch.tensor(float(self.values[index]))}


@HOOKS.register_class()
class LogTestBackward(Hook):
    role = "backward"

    def after_iter(self, solver):
        solver.loss.backward()
        if solver.window_closes:
            solver.optimizer.step()
            solver.total_updates += 1
            solver.optimizer.zero_grad()


@HOOKS.register_class()
class LogTestSink(Hook):
    """`records`: all that on_log brought."""

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger)
        self.records = []

    @hookimpl(optionalhook=True)
    def on_log(self, solver, record):
        self.records.append(record)


@HOOKS.register_class()
class LogTestCheckpoint(Hook):
    """Loads LOAD; saves after step SAVE_AT or epoch SAVE_EPOCH; raises after step FAIL_AT."""

    class Config(HookConfig):
        priority: int = 300
        load: str | None = None
        save: str | None = None
        save_at: int = 0
        save_epoch: int = 0
        fail_at: int = 0

    @hookimpl(tryfirst=True)
    def before_solve(self, solver):
        if self.cfg.LOAD:
            solver.load_checkpoint(torch.load(self.cfg.LOAD, weights_only=True))

    @hookimpl(trylast=True)
    def after_iter(self, solver):
        if self.cfg.SAVE and solver.train_steps == self.cfg.SAVE_AT:
            torch.save(copy.deepcopy(solver.save_checkpoint()), self.cfg.SAVE)
        if solver.train_steps == self.cfg.FAIL_AT:
            raise KeyError("as asked")

    @hookimpl(trylast=True)
    def after_epoch(self, solver):
        if self.cfg.SAVE and solver.epoch == self.cfg.SAVE_EPOCH:
            torch.save(copy.deepcopy(solver.save_checkpoint()), self.cfg.SAVE)


class Logged:
    """What a toy run logged: `lines` on standard output, `rows` of metrics.jsonl, `records` of on_log."""

    def __init__(self, solver, folder, text):
        self.solver = solver
        self.lines = [line for line in text.splitlines() if " | " in line]
        self.text = text
        self.path = folder / "metrics.jsonl"
        self.rows = (
            [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.is_file() else []
        )
        sinks = (
            [hook for hook in solver.hooks_dict["train"] if isinstance(hook, LogTestSink)] if solver else []
        )
        self.records = sinks[0].records if sinks else []

    def of(self, mode, kind):
        return [row for row in self.rows if (row["mode"], row["kind"]) == (mode, kind)]

    def means(self, mode="train", name="loss"):
        return [(row["step"], row["values"][name]) for row in self.of(mode, "iter")]


@pytest.fixture
def train(tmp_path: Path, capfd):
    """train(values, interval=…, …) → Logged. Every batch is one value unless batch_size says otherwise."""

    def go(
        values, *, interval=10, epochs=1, batch_size=1, kind="plain", eval_values=None, load=None, save_at=0,
        save_epoch=0, fail_at=0, hook=None, fails=None, **solver_keys,
    ):  # fmt: skip
        checkpoint = {
            "NAME": "LogTestCheckpoint",
            "SAVE_AT": save_at,
            "SAVE_EPOCH": save_epoch,
            "FAIL_AT": fail_at,
        }
        checkpoint |= {"LOAD": str(load)} if load else {}
        checkpoint |= {"SAVE": str(tmp_path / "saved.pth")}
        hooks = [{"NAME": "LogTestBackward"}, {"NAME": "LogTestSink"}, checkpoint]
        data = {"NAME": "LogTestData", "BATCH_SIZE": batch_size}
        solver = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(tmp_path / "run"),
            "MAX_EPOCHS": epochs,
            "TRAIN_DATA": {**data, "VALUES": values, "SHUFFLE": False},
            "MODEL": {"NAME": "LogTestModel", "KIND": kind},
            "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 0.001},
            "TRAIN_HOOKS": [*hooks, {"NAME": "LogHook", "LOG_INTERVAL": interval, **(hook or {})}],
            **solver_keys,
        }
        if eval_values is not None:
            solver["EVAL_DATA"] = {**data, "VALUES": eval_values}
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps({"ENV": {"DEVICE": "cpu"}, "SOLVER": solver}))  # JSON is YAML
        capfd.readouterr()
        if fails is not None:
            with pytest.raises(fails):
                run(config)
            return Logged(None, tmp_path / "run", capfd.readouterr().out)
        solver = run(config)
        return Logged(solver, tmp_path / "run", capfd.readouterr().out)

    return go
