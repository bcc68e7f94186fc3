"""Disks that fill up, become read-only, fail or go away in the middle of a run: told, and what was saved stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from scepter_core import HOOKS, Hook, HookConfig, read_checkpoint
from scepter_core.checkpoints import list_checkpoints
from scepter_core.cli import main

TASKS = Path(__file__).parents[1] / "tasks.py"
ACTIONS = {}  # what a hook of the run under test does, by name


@HOOKS.register_class()
class DiskTestAt(Hook):
    """Does something to the disk before a training step."""

    class Config(HookConfig):
        priority: int = -1
        step: int = 5
        action: str

    def before_iter(self, solver):
        if solver.is_train_mode and solver.train_steps + 1 == self.cfg.step:
            while not list(Path(solver.work_dir).rglob(f"*-{self.cfg.step - 1}.pth")):
                time.sleep(0.01)  # the file of the step before may be in flight
            ACTIONS[self.cfg.action]()
            self.logger.info("the disk is spoilt %s", "x" * 10_000)  # more than the rest of a page


def mount(path: Path, options: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    if not sys.platform.startswith("linux"):
        pytest.skip("tmpfs is Linux's")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "scepter-test", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    """A file system of one megabyte, which a test may spoil."""
    path = tmp_path / "disk"
    try:
        mount(path, "size=1m")
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)
        ACTIONS.clear()


@pytest.fixture
def job(disk, tmp_path):
    """job(action, hooks) → a configuration of four steps an epoch, in WORK_DIR `disk/run`, saved after every other step."""

    def make(action=None, *hooks, work_dir=disk / "run", **checkpoint):
        acting = [{"NAME": "DiskTestAt", "ACTION": action}] if action else []
        saving = {"NAME": "CheckpointHook", "INTERVAL": 0, "INTERVAL_STEPS": 2, "SAVE_LAST": True, **checkpoint}
        root = {
            "PLUGINS": [str(TASKS)],
            "ENV": {"DEVICE": "cpu"},
            "SOLVER": {
                "NAME": "TrainValSolver",
                "WORK_DIR": str(work_dir),
                "MAX_EPOCHS": 2,
                "TRAIN_DATA": {"NAME": "Rows", "SIZE": 16, "BATCH_SIZE": 4},
                "MODEL": {"NAME": "PlainDropNet"},
                "OPTIMIZER": {"NAME": "AdamW", "LEARNING_RATE": 0.01},
                "TRAIN_HOOKS": [{"NAME": "BackwardHook"}, {"NAME": "LogHook", "LOG_INTERVAL": 1}, *acting, *hooks, saving],
            },
        }
        path = tmp_path / "cfg.yaml"
        path.write_text(json.dumps(root))
        return str(path)

    return make


def fill(disk: Path) -> None:
    """Leave not one byte."""
    with open(disk / "filler", "wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_checkpoint(str(folder / "checkpoints/ldm_step-last.pth"))["model"]


def goes_on(job, tmp_path, disk) -> None:
    """What the disk has is whole, and a resume from it ends as a run that nothing disturbed."""
    infos = list_checkpoints(str(disk / "run"))
    assert [info.damage for info in infos] == [None] * len(infos)
    assert max(info.step for info in infos) == 4
    assert not [path for path in (disk / "run").rglob("*") if path.name.endswith(".tmp")]
    assert main(["run", job(), "--resume", "auto", "--quiet"]) == 0
    assert main(["run", job(work_dir=tmp_path / "other"), "--quiet"]) == 0
    whole, resumed = weights(tmp_path / "other"), weights(disk / "run")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    rows = [(disk / "run/metrics.jsonl").read_text().splitlines(), (tmp_path / "other/metrics.jsonl").read_text().splitlines()]
    assert len({len(lines) for lines in rows}) == 1


WRITERS = [
    [],
    [{"NAME": "TensorboardLogHook", "LOG_INTERVAL": 1}],
    [{"NAME": "SafetensorsHook", "INTERVAL": 1}],
]


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("hooks", WRITERS)
def test_a_disk_that_fills_up(job, disk, tmp_path, capfd, hooks, background):
    ACTIONS["fill"] = lambda: fill(disk)
    status = main(["run", job("fill", *hooks, ASYNC=background)])
    said = capfd.readouterr()
    assert status == 1
    assert "No space left on device" in said.err
    assert str(disk / "run") in said.err
    assert "Traceback" not in said.err + said.out
    assert said.out.count("cannot write the log") == 1
    (disk / "filler").unlink()
    goes_on(job, tmp_path, disk)


def test_a_disk_that_becomes_read_only(job, disk, tmp_path, capfd):
    seen = tmp_path / "seen"  # the same disk: what has files open cannot be made read-only itself
    seen.mkdir()

    def protect() -> None:
        for command in (["umount", "-l", str(seen)], ["mount", "--bind", str(disk), str(seen)],
                        ["mount", "-o", "remount,bind,ro", str(seen)]):  # fmt: skip
            subprocess.run(command, check=True)

    subprocess.run(["mount", "--bind", str(disk), str(seen)], check=True)
    ACTIONS["protect"] = protect
    try:
        status = main(["run", job("protect", work_dir=seen / "run")])
    finally:
        subprocess.run(["umount", "-l", str(seen)], check=True)
    said = capfd.readouterr()
    assert status == 1
    assert "Read-only file system" in said.err
    assert str(seen / "run") in said.err
    assert "Traceback" not in said.err + said.out
    goes_on(job, tmp_path, disk)


def test_a_disk_that_goes_away(disk, tmp_path, job, capfd):
    """Where it was mounted, nothing can be written."""
    inner = disk / "inner"
    mount(inner, "size=1m")
    subprocess.run(["mount", "-o", "bind,remount,ro", str(disk)], check=True)
    ACTIONS["unplug"] = lambda: subprocess.run(["umount", "-l", str(inner)], check=True)
    status = main(["run", job("unplug", work_dir=inner / "run")])
    said = capfd.readouterr()
    assert status == 1
    assert str(inner / "run") in said.err
    assert "Read-only file system" in said.err
    assert "Traceback" not in said.err + said.out


@pytest.mark.parametrize("background", [True, False])
def test_a_disk_whose_fsync_fails(job, disk, tmp_path, capfd, monkeypatch, background):
    """What the disk does not confirm is not there: the older files stay, and the run ends."""
    whole = os.fsync

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    ACTIONS["fail"] = lambda: monkeypatch.setattr(os, "fsync", fail)
    status = main(["run", job("fail", ASYNC=background)])
    monkeypatch.setattr(os, "fsync", whole)
    said = capfd.readouterr()
    assert status == 1
    assert "Input/output error" in said.err
    assert "Traceback" not in said.err + said.out
    goes_on(job, tmp_path, disk)


def test_a_disk_that_is_full_from_the_start(job, disk, capfd):
    (disk / "run").mkdir()
    fill(disk)
    assert main(["run", job()]) == 1
    said = capfd.readouterr()
    assert f"cannot write to {disk / 'run'}: " in said.err
    assert "No space left on device" in said.err
    assert "Traceback" not in said.err + said.out


def test_a_folder_that_is_removed_is_made_again(job, disk, tmp_path, capfd):
    ACTIONS["remove"] = lambda: shutil.rmtree(disk / "run")
    assert main(["run", job("remove")]) == 0
    assert "Traceback" not in "".join(capfd.readouterr())
    assert [info.step for info in list_checkpoints(str(disk / "run"))] == [8, 8, 6]
    assert main(["run", job(work_dir=tmp_path / "other"), "--quiet"]) == 0
    whole, removed = weights(tmp_path / "other"), weights(disk / "run")
    assert all(torch.equal(whole[name], removed[name]) for name in whole)
