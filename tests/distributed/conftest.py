"""Real processes, over gloo, on a task of a few kilobytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from scepter_core import read_checkpoint

HERE = Path(__file__).parent
BACKWARD = "{NAME: BackwardHook, GRADIENT_CLIP: 1.0, ACCUMULATE_STEP: %d}"
LAST = "{NAME: CheckpointHook, SAVE_LAST: true, INTERVAL: 0}"


@dataclass(frozen=True)
class Ended:
    """A run that ended, and what it left."""

    status: int
    out: str
    err: str
    work_dir: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, without what a clock decides."""
        lines = (self.work_dir / "metrics.jsonl").read_text().splitlines()
        return [{key: value for key, value in json.loads(line).items() if key != "timing"} for line in lines]

    def state(self, label: str = "last") -> dict[str, Any]:
        """The checkpoint of this label, with its tensors whole."""
        return read_checkpoint(str(self.work_dir / f"checkpoints/ldm_step-{label}.pth"))


class Many:
    """Runs the task in tests/distributed/team_task.py.

    Args:
        folder: WORK_DIRs and the configuration are made here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "cfg.yaml"
        self.config.write_text(
            f"PLUGINS: [{HERE / 'team_task.py'}]\n"
            "ENV: {DEVICE: cpu}\n"
            "SOLVER:\n"
            "  NAME: TrainValSolver\n"
            "  MAX_EPOCHS: 2\n"
            "  TRAIN_DATA: {NAME: Points, SIZE: 37, BATCH_SIZE: 4}\n"
            "  EVAL_DATA: {NAME: Points, SIZE: 11, SEED: 1, BATCH_SIZE: 4}\n"
            "  MODEL: {NAME: Perceptron}\n"
            "  OPTIMIZER: {NAME: AdamW, LEARNING_RATE: 1e-2}\n"
        )

    def environment(self, **more: str) -> dict[str, str]:
        """Of a child process: one thread, and none of a launcher's variables."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        kept = {name: value for name, value in os.environ.items() if name not in names and "SLURM" not in name}
        return {**kept, "OMP_NUM_THREADS": "1", **more}

    def command(self, name: str, *arguments: str) -> list[str]:
        """The command line of a run in WORK_DIR `name`."""
        return [sys.executable, "-m", "scepter_core", "run", str(self.config), f"SOLVER.WORK_DIR={self.folder / name}", *arguments]

    def run(
        self, name: str, *arguments: str, nproc: int = 1, hooks: str = "", accumulate: int = 1, log: int = 3, **environment: str
    ) -> Ended:
        """Run it to its end.

        Args:
            name: of the WORK_DIR.
            nproc: processes.
            hooks: further ones, as in a YAML list.
            accumulate: micro-batches of an update.
            log: LOG_INTERVAL.
        """
        listed = ", ".join(filter(None, (BACKWARD % accumulate, f"{{NAME: LogHook, LOG_INTERVAL: {log}}}", hooks or LAST)))
        done = subprocess.run(
            [
                *self.command(name, f"SOLVER.TRAIN_HOOKS=[{listed}]", *arguments),
                *(["--nproc", str(nproc)] if nproc > 1 else []),
            ],
            cwd=self.folder,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr, self.folder / name)


@pytest.fixture
def many(tmp_path: Path) -> Many:
    """What runs the task in one process or several."""
    return Many(tmp_path)


def assert_same(one: Any, other: Any, *, within: float = 0.0, at: str = "") -> None:
    """That two states are equal, or close."""
    if isinstance(one, torch.Tensor):
        assert one.shape == other.shape, at
        close = torch.equal(one, other) if within == 0 else torch.allclose(one.float(), other.float(), atol=within, rtol=within)
        assert close, f"{at}: {(one.float() - other.float()).abs().max()}"
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for key in one:
            assert_same(one[key], other[key], within=within, at=f"{at}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), at
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same(left, right, within=within, at=f"{at}[{number}]")
    elif isinstance(one, float) and within:
        assert one == pytest.approx(other, abs=within, rel=within), at
    else:
        assert one == other, at
