"""Small models, data sets and hooks that the whole-system tests name in their configurations (`PLUGINS`)."""

from __future__ import annotations

import json
import random
import time

import numpy as np
import torch
from pydantic import Field
from torch import nn

from scepter_core import DATASETS, HOOKS, METRICS, MODELS, Hook, HookConfig


@MODELS.register_class()
class GradProbe(nn.Module):
    """loss = w * mean(x): the gradient is the batch's mean, and plain SGD writes the history of updates into w."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))
        self.scale = scale

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.w * x.mean() * self.scale, "mean": x.mean()}


@MODELS.register_class()
class NormDropNet(nn.Module):
    """Linear, BatchNorm, Dropout, Linear: everything whose state or randomness a resume can lose."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits}


@DATASETS.register_class()
class Floats(torch.utils.data.Dataset):
    """One float a sample."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor(float(self.values[index]))}


@DATASETS.register_class()
class Stream(torch.utils.data.IterableDataset):
    """The same floats from front to back, without a length."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __iter__(self):
        for value in self.values:
            yield {"x": torch.tensor(float(value))}


@DATASETS.register_class()
class Rows(torch.utils.data.Dataset):
    """Random rows with noise of python, numpy and torch, drawn anew each time."""

    def __init__(self, size: int = 16) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(size, 4, generator=generator)
        self.y = torch.randint(0, 2, (size,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        noise = random.random() + float(np.random.rand()) + torch.rand(4)
        return {"x": self.x[index] + noise, "y": self.y[index]}


@DATASETS.register_class()
class DrawsInInit(Rows):
    """Draws from every stream while it is built."""

    def __init__(self) -> None:
        super().__init__()
        random.random(), np.random.rand(), torch.rand(7)


@DATASETS.register_class()
class Draws(torch.utils.data.Dataset):
    """What each stream gives for each sample."""

    def __init__(self, size: int = 8) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        draws = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return {"x": torch.tensor(draws, dtype=torch.float64), "index": torch.tensor(index)}


@HOOKS.register_class()
class TraceRecorder(Hook):
    """Writes every event with its counters, one JSON object a line."""

    class Config(HookConfig):
        file: str = Field(description="Where to write.")
        label: str = "rec"

    def _write(self, event, solver, **more) -> None:
        row = {
            "label": self.cfg.label,
            "event": event,
            "mode": solver.mode,
            "epoch": solver.epoch,
            "iter": solver.iter,
            "total_iter": solver.total_iter,
            "steps": solver.train_steps,
            "updates": solver.total_updates,
            "training": solver.model.training,
            "of": solver.epoch_max_iter,
            **more,
        }
        with open(self.cfg.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def before_solve(self, solver):
        self._write("before_solve", solver)

    def after_solve(self, solver):
        self._write("after_solve", solver)

    def before_epoch(self, solver):
        self._write("before_epoch", solver)

    def after_epoch(self, solver):
        self._write("after_epoch", solver)

    def before_all_iter(self, solver):
        self._write("before_all_iter", solver)

    def after_all_iter(self, solver):
        self._write("after_all_iter", solver)

    def before_iter(self, solver):
        self._write("before_iter", solver, last=solver.is_last_iter)

    def after_iter(self, solver):
        self._write("after_iter", solver, loss=float(torch.as_tensor(solver.iter_outputs.get("loss", 0)).detach()))

    def on_metrics(self, solver, mode, metrics):
        self._write("on_metrics", solver, of_mode=mode, metrics=metrics)

    def on_exception(self, solver, error):
        self._write("on_exception", solver, error=str(error))


@HOOKS.register_class()
class Raiser(Hook):
    """Raises at one event of one step."""

    class Config(HookConfig):
        event: str = "after_iter"
        step: int = 1

    def _at(self, event, solver) -> None:
        if event == self.cfg.event and solver.train_steps >= self.cfg.step:
            raise ValueError(f"raised on purpose in {event}")

    def before_epoch(self, solver):
        self._at("before_epoch", solver)

    def after_iter(self, solver):
        self._at("after_iter", solver)

    def after_solve(self, solver):
        self._at("after_solve", solver)

    def on_exception(self, solver, error):
        self._at("on_exception", solver)


@HOOKS.register_class()
class EvalNow(Hook):
    """Starts an eval in the middle of a training epoch."""

    def after_iter(self, solver):
        if solver.is_train_mode and solver.train_steps == 2:
            solver.solve_eval()


@HOOKS.register_class()
class DrawingHook(Hook):
    """Draws from every stream, at every event that it can."""

    def before_epoch(self, solver):
        random.random(), np.random.rand(), torch.rand(3)

    def before_iter(self, solver):
        random.random(), np.random.rand(), torch.rand(3)

    def after_iter(self, solver):
        random.random(), np.random.rand(), torch.rand(3)


@METRICS.register_class()
class LastValue:
    """A metric that is no torchmetrics one."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.reset()

    def reset(self) -> None:
        self.value = 0.0

    def update(self, x) -> None:
        self.value = float(x.reshape(-1)[-1])

    def compute(self) -> float:
        return self.value * self.factor

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state) -> None:
        self.value = state["value"]


@MODELS.register_class()
class MatrixNet(nn.Module):
    """Nothing but a matrix, for optimizers that take no vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.layer(x), y)}


@MODELS.register_class()
class SparseNet(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, 2, sparse=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.table(y), y)}


@DATASETS.register_class()
class SlowRows(Rows):
    """Rows that take a moment, so that a kill finds the run at work."""

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.004)
        return super().__getitem__(index)


@DATASETS.register_class()
class SharedStream(torch.utils.data.IterableDataset):
    """Ones, shared over the workers; says that there are LENGTH of them."""

    def __init__(self, size: int = 6, length: int = 6) -> None:
        self.size, self.length = size, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for _ in range(first, self.size, step):
            yield {"x": torch.tensor(1.0)}


@MODELS.register_class()
class PlainDropNet(nn.Module):
    """As NormDropNet, for batches of one row too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.net(x), y)}


@DATASETS.register_class()
class BufferedStream(torch.utils.data.IterableDataset):
    """Noisy rows, shared over the workers and shuffled in a small buffer; goes on where its state says.

    Args:
        size: rows of an epoch.
        log: a file that gets the number of every row that is read, one a line.
        keep: what the state is besides: `plain`, or `object`, which no checkpoint takes.
        seconds: what a row takes.
    """

    def __init__(self, size: int = 11, log: str | None = None, keep: str = "plain", seconds: float = 0.0) -> None:
        self.size, self.log, self.keep, self.seconds = size, log, keep, seconds
        self.read, self.buffer = 0, []

    def _rows(self):
        worker = torch.utils.data.get_worker_info()
        return range(worker.id, self.size, worker.num_workers) if worker else range(self.size)

    def __iter__(self):
        for number in self._rows()[self.read :]:
            self.read += 1
            time.sleep(self.seconds)
            if self.log:
                with open(self.log, "a", encoding="utf-8") as file:
                    file.write(f"{number}\n")
            self.buffer.append(number)
            if len(self.buffer) == 3:
                yield self._row(self.buffer.pop(random.randrange(3)))
        while self.buffer:
            yield self._row(self.buffer.pop(int(torch.randint(len(self.buffer), ()))))
        self.read = 0

    def _row(self, number: int) -> dict[str, torch.Tensor]:
        noise = random.random() + float(np.random.rand())
        return {"x": torch.full((4,), number / 10) + torch.rand(4) + noise, "y": torch.tensor(number % 2)}

    def state_dict(self):
        return {"read": self.read, "buffer": self.buffer, **({} if self.keep == "plain" else {"more": object()})}

    def load_state_dict(self, state) -> None:
        self.read, self.buffer = state["read"], list(state["buffer"])


@DATASETS.register_class()
class ForgetfulStream(BufferedStream):
    """The same without a state."""

    state_dict = load_state_dict = None
