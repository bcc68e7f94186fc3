"""What the runs of these tests are made of; a configuration names this file under PLUGINS."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import time
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from scepter_core import DATASETS, HOOKS, MODELS, FileSystem, Hook, HookConfig, hookimpl


@MODELS.register_class()
class Probe(nn.Module):
    """loss = w · mean(x): the gradient is the batch's mean. In eval it also gives `acc`, what a hook put there."""

    def __init__(self, double: bool = False, ballast: int = 0):
        super().__init__()
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64 if double else torch.float32))
        self.register_buffer("ballast", torch.zeros(ballast))
        self.scripted: float | None = None

    def forward(self, x):
        if self.training or self.scripted is None:
            return {"loss": self.w * x.mean()}
        return {"loss": self.scripted, "acc": self.scripted}


@MODELS.register_class()
class DropNet(nn.Sequential):
    """Layers with buffers and with randomness of their own."""

    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x, label):
        logits = super().forward(x)
        return {"loss": nn.functional.cross_entropy(logits, label), "logits": logits}


@DATASETS.register_class()
class Numbers(Dataset):
    def __init__(self, values: list[float], seconds: float = 0.0):
        self.values, self.seconds = values, seconds

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return {"x": torch.tensor(self.values[index])}


@DATASETS.register_class()
class NoisyRows(Dataset):
    """Random rows, with noise from python's and numpy's streams in every sample."""

    def __init__(self, size: int = 16):
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randn(size, 4, generator=generator)
        self.labels = torch.randint(2, (size,), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        noise = random.gauss(0.0, 0.1) + float(np.random.normal(0.0, 0.1)) + 0.1 * torch.randn(4)
        return {"x": self.rows[index] + noise, "label": self.labels[index]}


@HOOKS.register_class()
class Step(Hook):
    """The gradient, and the update where a window closes."""

    role = "backward"

    def after_iter(self, solver):
        if not solver.is_train_mode:
            return
        (solver.loss / solver.window_size).backward()
        if solver.window_closes:
            solver.optimizer.step()
            solver.total_updates += 1
            solver.optimizer.zero_grad()


@HOOKS.register_class()
class Script(Hook):
    """For EVAL_HOOKS: the metric `acc` of each epoch's eval; null: that eval fails."""

    class Config(HookConfig):
        values: list[float | None]

    def before_iter(self, solver):
        value = self.cfg.VALUES[solver.epoch - 1]
        if value is None:
            raise ValueError("the eval fails, as asked")
        solver.model.scripted = value


@HOOKS.register_class()
class Recorder(Hook):
    """Notes every training step and every checkpoint; FILE: the losses, one line a step."""

    class Config(HookConfig):
        priority: int = 150
        file: str | None = None

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger=logger)
        self.steps: list[tuple[int, int, float]] = []
        self.checkpoints: list[tuple[str, str, dict[str, Any]]] = []
        self.evals: list[int] = []

    def after_iter(self, solver):
        self.steps.append((solver.epoch, solver.train_steps, float(solver.loss.detach())))
        if self.cfg.FILE:
            with open(self.cfg.FILE, "a", encoding="utf-8") as file:
                file.write(json.dumps(self.steps[-1]) + "\n")

    def on_metrics(self, solver, mode, metrics):
        if mode == "eval":
            self.evals.append(solver.epoch)

    @hookimpl(optionalhook=True)
    def on_checkpoint(self, solver, path, kind):
        self.checkpoints.append((path, kind, torch.load(path, weights_only=True)))


@HOOKS.register_class()
class Stateful(Hook):
    """Has a state: plain, or an object that no checkpoint takes."""

    class Config(HookConfig):
        kind: str = "plain"

    def state_dict(self):
        return {"inner": {"list": [1, object()]}} if self.cfg.KIND == "object" else {"count": 7}


@HOOKS.register_class()
class Failing(Hook):
    """Raises after step AT."""

    class Config(HookConfig):
        at: int

    def after_iter(self, solver):
        if solver.train_steps == self.cfg.AT:
            raise ValueError("the step fails, as asked")


@HOOKS.register_class()
class Signal(Hook):
    """Sends the process SIGNUM after training step AT_STEP, in the eval of AT_EVAL; or says where it is."""

    class Config(HookConfig):
        at_step: int = 0
        at_eval: int = 0
        signum: int = signal.SIGTERM
        say: bool = False

    def after_iter(self, solver):
        if solver.is_train_mode:
            due = solver.train_steps == self.cfg.AT_STEP
            if self.cfg.SAY:
                print(f"step {solver.train_steps}", flush=True)
        else:
            due = solver.epoch == self.cfg.AT_EVAL
        if due:
            os.kill(os.getpid(), self.cfg.SIGNUM)


@HOOKS.register_class()
class FileLimit(Hook):
    """From epoch 2 on, once the file WHOLE is there, no file may grow beyond 64 KiB."""

    class Config(HookConfig):
        whole: str

    def before_epoch(self, solver):
        if solver.epoch == 2:
            while not os.path.exists(self.cfg.WHOLE):
                time.sleep(0.01)
            resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))


class _Dying:
    """A file that ends the process, as a power cut would, when half of what belongs into it is written."""

    def __init__(self, file: BinaryIO, after: int):
        self.file, self.left = file, after

    def write(self, data: Any) -> int:
        self.left -= len(data)
        if self.left < 0:
            self.file.flush()
            os._exit(9)
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


@HOOKS.register_class()
class DieInWrite(Hook):
    """The write of the checkpoint number AT ends the process after 700 bytes."""

    class Config(HookConfig):
        at: int = 3

    def before_solve(self, solver):
        whole, hook = FileSystem.write_atomic, self
        self.writes = 0

        def write_atomic(file_system, path, write):
            hook.writes += path.endswith(".pth")
            if path.endswith(".pth") and hook.writes == hook.cfg.AT:
                whole(file_system, path, lambda file: write(_Dying(file, 700)))
            else:
                whole(file_system, path, write)

        FileSystem.write_atomic = write_atomic


@HOOKS.register_class()
class InterruptInWrite(Hook):
    """The writing of a checkpoint is slow, and a signal, Ctrl-C's or SIGNUM, comes in its middle."""

    class Config(HookConfig):
        signum: int = signal.SIGINT

    def before_solve(self, solver):
        whole, signum = FileSystem.write_atomic, self.cfg.SIGNUM

        def write_atomic(file_system, path, write):
            def slow(file):
                os.kill(os.getpid(), signum)
                time.sleep(0.3)
                write(file)

            whole(file_system, path, slow if path.endswith(".pth") else write)

        FileSystem.write_atomic = write_atomic
