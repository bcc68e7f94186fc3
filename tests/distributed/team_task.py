"""The task that several processes share: a perceptron of two hundred numbers, and hooks that make trouble."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

from scepter_core import DATASETS, HOOKS, MODELS, STRATEGIES, Hook, HookConfig, Named, Strategy


def _points(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
    w = torch.randn(8, 3, generator=torch.Generator().manual_seed(99))
    return x, (x @ w).argmax(1)


@DATASETS.register_class()
class Points(torch.utils.data.Dataset):
    def __init__(self, size: int = 37, seed: int = 0) -> None:
        self.x, self.y = _points(size, seed)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "y": self.y[index]}


@DATASETS.register_class()
class PointStream(torch.utils.data.IterableDataset):
    """The same from front to back; with OWN, each process takes its own part."""

    def __init__(self, size: int = 37, seed: int = 0, own: bool = False) -> None:
        self.x, self.y = _points(size, seed)
        self.splits_by_rank = own

    def __iter__(self):
        first, step = 0, 1
        if self.splits_by_rank and torch.distributed.is_initialized():
            first, step = torch.distributed.get_rank(), torch.distributed.get_world_size()
        for index in range(first, len(self.x), step):
            yield {"x": self.x[index], "y": self.y[index]}


@DATASETS.register_class()
class ShuffledStream(PointStream):
    """The same in an order that it draws itself, from the global stream."""

    def __iter__(self):
        for index in torch.randperm(len(self.x)).tolist():
            yield {"x": self.x[index] + 0.1 * torch.rand(()), "y": self.y[index]}


@DATASETS.register_class()
class NotedStream(PointStream):
    """The same with noise and with a state; notes in the folder LOG, a file a process, every point that is read."""

    def __init__(self, log: str, size: int = 37, own: bool = False) -> None:
        super().__init__(size, own=own)
        self.log, self.read = log, 0

    def __iter__(self):
        for number, point in enumerate(super().__iter__()):
            if number < self.read:
                continue
            self.read = number + 1
            with open(os.path.join(self.log, os.environ.get("RANK", "0")), "a") as file:
                file.write(f"{number}\n")
            yield {"x": point["x"] + torch.rand(()), "y": point["y"]}
        self.read = 0

    def state_dict(self):
        return {"read": self.read}

    def load_state_dict(self, state) -> None:
        self.read = state["read"]


@MODELS.register_class()
class Perceptron(nn.Module):
    """A buffer that training moves, tied entries, and a dropout that is off by default."""

    def __init__(self, width: int = 12, drop: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.drop = nn.Dropout(drop)
        self.head = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.seen += 1
        for block in self.blocks:
            x = x + self.drop(torch.tanh(block(x)))
        logits = self.head(x)
        return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits}


@STRATEGIES.register_class()
class OneByOne(Strategy):
    """A strategy of somebody else's: every gradient is averaged by itself, as soon as it is there."""

    class Config(Named):
        factor: float = 1.0

    def prepare(self, model: nn.Module, trains: bool) -> nn.Module:
        for parameter in model.parameters() if trains and self.processes.world_size > 1 else ():
            parameter.register_post_accumulate_grad_hook(self._average)
        return model

    def _average(self, parameter: torch.Tensor) -> None:
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad.mul_(self.cfg.factor / self.processes.world_size)


@HOOKS.register_class()
class Trouble(Hook):
    """At one training step of one process, something happens; not again after a restart."""

    class Config(HookConfig):
        what: str
        at: int = 8
        who: int = 1

    def after_iter(self, solver) -> None:
        cfg = self.cfg
        if not solver.is_train_mode or (solver.train_steps, solver.rank) != (cfg.at, cfg.who) or solver.processes.place.restarts:
            return
        if cfg.what == "raise":
            raise ValueError("no more")
        if cfg.what == "hang":
            time.sleep(600)
        if cfg.what == "exit":
            os._exit(7)
        if cfg.what == "slow":
            time.sleep(0.5)
        signals = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "save": signal.SIGUSR1, "stop": signal.SIGSTOP}
        os.kill(os.getpid(), signals[cfg.what])


@HOOKS.register_class()
class Told(Hook):
    """Prints the process ids of all, once, and slows the steps down so that a test can act among them."""

    class Config(HookConfig):
        pause: float = 0.05

    def before_solve(self, solver) -> None:
        pids = solver.processes.gather(os.getpid())
        if solver.rank == 0:
            print("pids", *pids, flush=True)

    def after_iter(self, solver) -> None:
        time.sleep(self.cfg.pause)


@HOOKS.register_class()
class ReadAtResume(Hook):
    """Prints how many bytes each process reads from when it is set up until it is where it was."""

    def __init__(self, cfg, logger=None) -> None:
        super().__init__(cfg, logger)
        self.before = _bytes_read()

    def before_solve(self, solver) -> None:
        read = solver.processes.gather(_bytes_read() - self.before)
        if solver.rank == 0:
            print("bytes read:", *read, flush=True)


def _bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().split()
    return int(lines[lines.index("rchar:") + 1])


@MODELS.register_class()
class OddPerceptron(Perceptron):
    """With parameters that not every strategy likes.

    Args:
        tied: one of a single row, under two names.
        unused: one that no loss depends on.
        scalar: one without axes.
    """

    def __init__(self, tied: bool = False, unused: bool = False, scalar: bool = False) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False)
        if tied:
            self.other.weight = self.one.weight
        if unused:
            self.aside = nn.Linear(2, 2)
        if scalar:
            self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = super().forward(x, y)
        logits = outputs["logits"]
        gap = self.one(logits) - self.other(logits.tanh())
        return {"loss": outputs["loss"] + 0.1 * gap.square().mean(), "logits": logits}


@HOOKS.register_class()
class Poison(Hook):
    """Puts a NaN into the last process's part of the gradient, once."""

    def after_backward(self, solver) -> None:
        if solver.rank == solver.world_size - 1 and solver.train_steps == 3:
            next(solver.model.parameters()).grad.to_local().fill_(float("nan"))
