"""The real command in a process of its own, and a small run for it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TASK = '''
import torch
from scepter_core import DATASETS, HOOKS, MODELS, SOLVERS, Hook, HookConfig, TrainValSolver, hookimpl, hookspec


@DATASETS.register_class()
class Dots(torch.utils.data.Dataset):
    def __init__(self, size: int = 8):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.tensor([float(index)])}


@MODELS.register_class()
class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x):
        return {"loss": (self.linear(x) ** 2).mean()}


class StepEvents:
    @hookspec
    def after_descent(self, solver):
        """The weights moved."""

    @hookspec(scope="run")
    def on_rest(self, solver, reason):
        """A pause."""


@HOOKS.register_class()
class Descent(Hook):
    """Moves the weights."""

    role = "backward"
    events = StepEvents

    def after_iter(self, solver):
        solver.loss.backward()
        solver.optimizer.step()
        solver.optimizer.zero_grad()


@HOOKS.register_class()
class Early(Hook):
    class Config(HookConfig):
        priority: int = 50

    @hookimpl(tryfirst=True)
    def before_solve(self, solver):
        pass

    def after_iter(self, solver):
        pass

    def after_descent(self, solver):
        pass


@HOOKS.register_class()
class Around(Hook):
    class Config(HookConfig):
        priority: int = 90

    @hookimpl(wrapper=True)
    def after_iter(self, solver):
        return (yield)

    @hookimpl(trylast=True)
    def before_solve(self, solver):
        pass

    def on_rest(self, reason):
        pass


@HOOKS.register_class()
class Misspelt(Hook):
    def before_itr(self, solver):
        pass


@HOOKS.register_class()
class Breaks(Hook):
    class Config(HookConfig):
        at: int = 3

    def after_iter(self, solver):
        if solver.train_steps == self.cfg.AT:
            raise ValueError("no more: \\u00fc")
'''

CONFIG = """\
PLUGINS: [./task.py]
ENV: {DEVICE: cpu}
SOLVER:
  NAME: TrainValSolver
  WORK_DIR: ./run
  MAX_EPOCHS: 2
  TRAIN_DATA: {NAME: Dots, BATCH_SIZE: 2}
  EVAL_DATA: {NAME: Dots, BATCH_SIZE: 2}
  MODEL: {NAME: Line}
  OPTIMIZER: {NAME: SGD, LEARNING_RATE: 0.001}
  TRAIN_HOOKS: [{NAME: Descent}]
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Project:
    """A folder with a configuration, and the command run in it."""

    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "PYTHONPATH", "COLUMNS")}
        return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **more}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "scepter_core", *arguments]

    def scepter(self, *arguments: str, **environment: str) -> Done:
        """Run the command in the folder, off a terminal."""
        ended = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(**environment),
            capture_output=True,
            timeout=120,
            check=False,
        )
        return Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def distribution(
        self, name: str, code: str, entry_points: dict[str, str], requires: str = "", version: str = "1.2"
    ) -> str:
        """Install a throw-away distribution, and return the folder to put on PYTHONPATH."""
        module = name.replace("-", "_")
        self.write(f"site/{module}.py", code)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += f"Requires-Dist: {requires}\n" if requires else ""
        self.write(f"site/{module}-{version}.dist-info/METADATA", metadata)
        lines = ["[scepter.hooks]", *(f"{key} = {module}:{value}" for key, value in entry_points.items())]
        self.write(f"site/{module}-{version}.dist-info/entry_points.txt", "\n".join(lines) + "\n")
        return str(self.folder / "site")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("task.py", TASK)
    made.write("cfg.yaml", CONFIG)
    return made
