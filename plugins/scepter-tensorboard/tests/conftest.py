"""A toy run whose loss is what its data says, and TensorBoard's own view of what was written."""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

from scepter_core import (
    DATASETS,
    HOOKS,
    MODELS,
    SOLVERS,
    Hook,
    HookConfig,
    ScepterError,
    TrainValSolver,
    hookimpl,
    run,
)

torch.set_num_threads(1)  # tensors of a few numbers: more threads only get in each other's way


@MODELS.register_class()
class BoardTestModel(torch.nn.Module):
    """loss: the batch's mean. KIND adds outputs of other kinds. The weight's gradient is the loss."""

    def __init__(self, kind: str = "plain"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))
        self.kind, self.calls = kind, 0

    def forward(self, x):
        mean = x.mean()
        loss = mean + mean * (self.weight - self.weight.detach())
        self.calls += 1
        if self.kind == "odd":
            others = {"logits": torch.zeros(4, 3), "name": "abc", "nothing": None, "list": [0.1]}
            return {"loss": loss, **others}
        if self.kind == "numbers":
            others = {"count": 3, "half": torch.tensor(0.5, dtype=torch.bfloat16), "step": torch.tensor(7)}
            return {"loss": loss, **others, "flag": True, "truth": torch.tensor(True)}
        if self.kind == "wild":
            return {"loss": loss, "wild": (math.nan, math.inf, -math.inf)[self.calls - 1]}
        if self.kind == "buffer":  # the very same tensor at every step
            self.seen += 1
            return {"loss": loss, "seen": self.seen}
        if self.kind == "no scalar":
            return {"logits": torch.zeros(4, 3)}
        if self.kind == "sometimes":
            return {"loss": loss, "extra": loss * 10} if self.calls % 2 else {"loss": loss}
        return {"loss": loss}


@SOLVERS.register_class()
class BoardTestSolver(TrainValSolver):
    """Does not know which iteration is the last of its epoch."""

    def after_iter(self):
        self.is_last_iter = False
        super().after_iter()


@DATASETS.register_class()
class BoardTestData(torch.utils.data.Dataset):
    def __init__(self, values: list[float]):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return {"x": torch.tensor(float(self.values[index]))}


@HOOKS.register_class()
class BoardTestBackward(Hook):
    role = "backward"

    def after_iter(self, solver):
        (solver.loss / solver.window_size).backward()
        if solver.window_closes:
            solver.optimizer.step()
            solver.total_updates += 1
            solver.optimizer.zero_grad()


@HOOKS.register_class()
class BoardTestCheckpoint(Hook):
    """Loads LOAD; saves after step SAVE_AT, epoch SAVE_EPOCH or the end; after step END_AT ends the process as HOW says."""

    class Config(HookConfig):
        priority: int = 300
        load: str | None = None
        save: str = ""
        save_at: int = 0
        save_epoch: int = 0
        save_end: bool = False
        end_at: int = 0
        how: str = "raise"

    loads_checkpoints = True

    @hookimpl(tryfirst=True)
    def before_solve(self, solver):
        if self.cfg.LOAD:
            solver.load_checkpoint(torch.load(self.cfg.LOAD, weights_only=True))

    @hookimpl(trylast=True)
    def after_iter(self, solver):
        if not solver.is_train_mode:
            return
        if solver.train_steps == self.cfg.SAVE_AT:
            self._save(solver)
        if solver.train_steps == self.cfg.END_AT:
            if self.cfg.HOW == "exit":
                os._exit(9)
            if self.cfg.HOW == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyError("as asked")

    @hookimpl(trylast=True)
    def after_epoch(self, solver):
        if solver.is_train_mode and solver.epoch == self.cfg.SAVE_EPOCH:
            self._save(solver)

    @hookimpl(trylast=True)
    def after_solve(self, solver):
        if self.cfg.SAVE_END:
            self._save(solver)

    def _save(self, solver):
        torch.save(copy.deepcopy(solver.save_checkpoint()), self.cfg.SAVE)


class Lines(logging.Handler):
    """Keeps the lines that a run logs."""

    def __init__(self):
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())


class Board:
    """What a toy run left: TensorBoard's view of `folder`, the lines of its log, its solver."""

    def __init__(self, folder: Path, solver: Any = None, lines: list[str] | None = None):
        self.folder, self.solver, self.lines = folder, solver, lines or []

    @property
    def files(self):
        return sorted(path for path in self.folder.glob("*tfevents*") if path.is_file())

    @property
    def accumulator(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        return EventAccumulator(str(self.folder), size_guidance={"scalars": 0}).Reload()

    @property
    def tags(self):
        return sorted(self.accumulator.Tags()["scalars"])

    def points(self, tag="train/iter/loss"):
        return [(point.step, point.value) for point in self.accumulator.Scalars(tag)]

    def steps(self, tag="train/iter/loss"):
        return [step for step, _ in self.points(tag)]

    @property
    def everything(self):
        accumulator = self.accumulator
        return {
            tag: [(point.step, point.value) for point in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]
        }

    def content(self):
        """Every file below the folder, with its time and its bytes."""
        return {
            str(path.relative_to(self.folder)): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


@HOOKS.register_class()
class BoardTestFullDisk(Hook):
    """After step AT, the system lets no file grow beyond SIZE bytes. Only for a process of its own."""

    class Config(HookConfig):
        at: int
        size: int

    def after_iter(self, solver):
        if solver.train_steps == self.cfg.AT:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.cfg.SIZE, resource.RLIM_INFINITY))


@pytest.fixture
def board(tmp_path: Path):
    """The board of the run that `train` runs unless told otherwise, before there is one."""
    return Board(tmp_path / "run" / "tensorboard")


@pytest.fixture
def train(tmp_path: Path):
    """train(values, interval=…, …) → Board. Every batch is one value unless batch_size says otherwise.

    name: the run's folder. saved: the name of its checkpoint. process: in a forked process, whose exit status must be
    that number. hook: further keys of the hook; None: the run has none.
    """

    def go(
        values, *, name="run", interval=1, epochs=1, batch_size=1, kind="plain", eval_values=None, hook=..., more=(),
        eval_hooks=(), load=None, saved="saved", save_at=0, save_epoch=0, save_end=False, end_at=0, how="raise",
        process=None, fails=None, data=None, mode=None, **solver_keys,
    ):  # fmt: skip
        checkpoint = {
            "NAME": "BoardTestCheckpoint", "SAVE": str(tmp_path / f"{saved}.pth"), "SAVE_AT": save_at,
            "SAVE_EPOCH": save_epoch, "SAVE_END": save_end, "END_AT": end_at, "HOW": how,
        }  # fmt: skip
        checkpoint |= {"LOAD": str(tmp_path / f"{load}.pth")} if load else {}
        own = {"NAME": "TensorboardLogHook", "LOG_INTERVAL": interval, **({} if hook is ... else hook or {})}
        work_dir = Path(solver_keys.pop("WORK_DIR", tmp_path / name))
        data = {"NAME": "BoardTestData", "BATCH_SIZE": batch_size, **(data or {})}
        solver = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(work_dir),
            "MAX_EPOCHS": epochs,
            "TRAIN_DATA": {**data, "VALUES": values, "SHUFFLE": False},
            "MODEL": {"NAME": "BoardTestModel", "KIND": kind},
            "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 0.25},
            "TRAIN_HOOKS": [
                {"NAME": "BoardTestBackward"}, checkpoint, *([] if hook is None else [own]), *more,
            ],
            "EVAL_HOOKS": list(eval_hooks),
            **solver_keys,
        }  # fmt: skip
        if eval_values is not None:
            solver["EVAL_DATA"] = {**data, "VALUES": eval_values}
        config = tmp_path / "config.yaml"
        config.write_text(json.dumps({"ENV": {"DEVICE": "cpu"}, "SOLVER": solver}))  # JSON is YAML
        folder = Path(own.get("LOG_DIR") or work_dir / "tensorboard")
        if process is not None:
            assert _in_a_process(lambda: run(config), tmp_path / "process.txt") == process
            return Board(folder)
        lines = Lines()
        logger = logging.Logger("test")
        logger.addHandler(lines)
        if fails is not None:
            with pytest.raises(fails) as caught:
                run(config, logger=logger)
            return Board(folder, caught.value, lines.lines)
        if mode is not None:
            solver = _without_training(config, logger, mode, tmp_path / f"{load}.pth")
            return Board(folder, solver, lines.lines)
        return Board(folder, run(config, logger=logger), lines.lines)

    return go


def _without_training(config, logger, mode, checkpoint):
    return run(config, mode=mode, resume=str(checkpoint), logger=logger)


def _in_a_process(main, output):
    """Run `main` in a process forked from this one, which spares the import of torch; its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with output.open("w") as sys.stdout:
                main()
            status = 0
        except BaseException as error:
            status = error.exit_status if isinstance(error, ScepterError) else 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            with output.open("a") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
