"""Runs of the task in checkpoint_task.py, in this process and in others, and a look at the files they leave."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

from scepter_core import ScepterError, read_checkpoint, run

torch.set_num_threads(1)  # tensors of a few numbers: more threads only get in each other's way

TASK = Path(__file__).with_name("checkpoint_task.py")
PROGRAM = """
import sys
from scepter_core import ScepterError, run
try:
    run(sys.argv[1], sys.argv[2:])
except ScepterError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_status)
except KeyboardInterrupt:
    sys.exit(130)
"""


class Lines(logging.Handler):
    """Keeps the lines that a run logs."""

    def __init__(self):
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def of(self, level):
        return [line for line in self.lines if line.startswith(level)]

    @property
    def text(self):
        return "\n".join(self.lines)


class Job:
    """The configuration of a toy run, below one folder."""

    def __init__(self, folder: Path, solver: dict[str, Any]):
        self.work_dir = folder / "run"
        self.config = folder / "config.yaml"
        self.log = Lines()
        root = {
            "PLUGINS": [str(TASK)],
            "ENV": {"DEVICE": "cpu"},
            "SOLVER": {"WORK_DIR": str(self.work_dir), **solver},
        }
        self.config.write_text(
            json.dumps(root).replace("NaN", ".nan"), encoding="utf-8"
        )  # JSON is YAML but for that

    def run(self, *overrides, **arguments):
        logger = logging.Logger("test")
        self.log = Lines()
        logger.addHandler(self.log)
        return run(self.config, overrides, logger=logger, **arguments)

    def interpreter(self, *overrides):
        """Run in a python of its own."""
        command = [sys.executable, "-c", PROGRAM, str(self.config), *overrides]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environment
        )

    def process(self, *overrides):
        """Run in a process forked from this one, which spares the import of torch."""
        files = [self.config.with_suffix(suffix) for suffix in (".out", ".err")]
        outputs = [os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for file in files]
        child = self._fork(outputs, overrides)
        for output in outputs:
            os.close(output)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return subprocess.CompletedProcess(overrides, status, *(file.read_text() for file in files))

    def start(self, *overrides):
        """Run as `process` does, in a session of its own, and do not wait: its number, and what it prints."""
        reading, writing = os.pipe()
        child = self._fork([writing, writing], overrides)
        os.close(writing)
        return child, os.fdopen(reading)

    def _fork(self, outputs, overrides):
        child = os.fork()
        if child == 0:
            os.setsid()
            _as_a_program(outputs, lambda: run(self.config, overrides))
        return child

    def path(self, name):
        return self.work_dir / "checkpoints" / f"{name}.pth"

    def read(self, name):
        return read_checkpoint(str(self.path(name)))

    def weight(self, name):
        return float(self.read(name)["model"]["w"])

    @property
    def names(self):
        """The checkpoint files without their suffix; any other file with its whole name."""
        folder = self.work_dir / "checkpoints"
        return {path.name.removesuffix(".pth") for path in folder.iterdir()} if folder.is_dir() else set()

    def content(self):
        """Every file below WORK_DIR with its time and the hash of what is in it."""
        return {
            str(path.relative_to(self.work_dir)): (
                path.stat().st_mtime_ns,
                hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            for path in sorted(self.work_dir.rglob("*"))
            if path.is_file()
        }


def _as_a_program(outputs, main):
    """In a forked child: what an interpreter does around a program, and never return."""
    status = 1
    try:
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", encoding="utf-8"), os.fdopen(2, "w", encoding="utf-8")
        main()
        status = 0
    except ScepterError as error:
        print(error, file=sys.stderr)
        status = error.exit_status
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        traceback.print_exc()
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def same(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two states differ in the least bit; empty: nowhere."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        equal = (
            isinstance(left, torch.Tensor)
            and isinstance(right, torch.Tensor)
            and left.dtype == right.dtype
            and torch.equal(left, right)
        )
        return [] if equal else [path]
    if isinstance(left, dict) and isinstance(right, dict):
        differ = [f"{path}.{name} on one side" for name in left.keys() ^ right.keys()]
        return differ + [
            at
            for name in left.keys() & right.keys()
            for at in same(left[name], right[name], f"{path}.{name}")
        ]
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        return [
            at for n, (a, b) in enumerate(zip(left, right, strict=True)) for at in same(a, b, f"{path}[{n}]")
        ]
    return [] if repr(left) == repr(right) else [f"{path}: {left!r} and {right!r}"]


@pytest.fixture
def differences():
    """differences(a, b): where two checkpoints differ, but for the text of their configuration."""
    return lambda left, right: same({**left, "config": ""}, {**right, "config": ""})


@pytest.fixture
def recorder():
    """recorder(solver): its Recorder hook."""
    return lambda solver: next(hook for hook in solver.hooks_dict["train"] if hook.name == "Recorder")


@pytest.fixture
def probe(tmp_path: Path):
    """probe([x, …], CheckpointHook's keys…) → Job: plain SGD of rate 1 on the values, in order, one a batch."""

    def make(
        values=(1.0, 1.0, 1.0), *, folder="a", epochs=2, model=None, optimizer=None, evals=None, hooks=(), eval_hooks=(),
        data=None, solver=None, **checkpoint,
    ):  # fmt: skip
        numbers = {"NAME": "Numbers", "VALUES": list(values), **(data or {})}
        section = {
            "NAME": "TrainValSolver",
            "MAX_EPOCHS": epochs,
            "TRAIN_DATA": {**numbers, "SHUFFLE": False},
            "MODEL": {"NAME": "Probe", **(model or {})},
            "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 1.0, **(optimizer or {})},
            "TRAIN_HOOKS": [
                {"NAME": "Step"},
                {"NAME": "Recorder"},
                *hooks,
                {"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "p", **checkpoint},
            ],
        }
        if evals is not None:
            section["EVAL_DATA"] = {**numbers, "VALUES": [0.0, 0.0]}
            section["EVAL_HOOKS"] = [{"NAME": "Script", "VALUES": list(evals)}, *eval_hooks]
        section = {key: value for key, value in (section | (solver or {})).items() if value is not ...}
        (tmp_path / folder).mkdir(exist_ok=True)
        return Job(tmp_path / folder, section)

    return make


@pytest.fixture
def dropnet(tmp_path: Path):
    """dropnet(CheckpointHook's keys…) → Job: a shuffled run with dropout, BatchNorm and noise, eval every epoch."""

    def make(*, folder="a", epochs=4, size=16, hooks=(), solver=None, **checkpoint):
        section = {
            "NAME": "TrainValSolver",
            "MAX_EPOCHS": epochs,
            "TRAIN_DATA": {"NAME": "NoisyRows", "BATCH_SIZE": 4, "SIZE": size},
            "EVAL_DATA": {"NAME": "NoisyRows", "BATCH_SIZE": 4, "SIZE": 8},
            "MODEL": {"NAME": "DropNet"},
            "OPTIMIZER": {"NAME": "AdamW", "LEARNING_RATE": 0.01},
            "METRICS": [{"NAME": "AccuracyMetric", "KEYS": ["logits", "label"]}],
            "TRAIN_HOOKS": [
                {"NAME": "Step"},
                {"NAME": "Recorder", "FILE": str(tmp_path / folder / "losses.jsonl")},
                {"NAME": "Stateful"},
                *hooks,
                {"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "p", "SAVE_LAST": True, **checkpoint},
            ],
            **(solver or {}),
        }
        (tmp_path / folder).mkdir(exist_ok=True)
        return Job(tmp_path / folder, section)

    return make


@pytest.fixture
def losses(tmp_path: Path):
    """losses(folder): what the Recorder of a dropnet run wrote, (epoch, step, loss) a step."""
    return lambda folder: [
        json.loads(line) for line in (tmp_path / folder / "losses.jsonl").read_text().splitlines()
    ]
