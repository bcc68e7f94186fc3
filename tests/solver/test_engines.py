"""One description of a run, whatever goes through it: the core's loop, lightning's Trainer, or an engine of one's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scepter_core import ENGINES, Engine, read_checkpoint, run

DIGITS = Path(__file__).parents[2] / "docs/examples/digits/digits.yaml"
SMALL = ["ENV.DEVICE=cpu", "SOLVER.MODEL.WIDTH=4", "SOLVER.TRAIN_DATA.BATCH_SIZE=64"]
STEPS = 40  # of two epochs: 1280 images in batches of 64


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def digits(folder, use_pl, **options):
    """Two epochs of the digits example with a small net; checkpoints within a window and within an epoch."""
    keys = [*SMALL, f"ENV.USE_PL={use_pl}", f"SOLVER.WORK_DIR={folder}", "SOLVER.MAX_EPOCHS=2"]
    keys += ["SOLVER.TRAIN_HOOKS[BackwardHook].ACCUMULATE_STEP=3"]
    keys += ["SOLVER.TRAIN_HOOKS[CheckpointHook].INTERVAL_STEPS=14"]
    return run(str(DIGITS), keys, **options)


def weights(path):
    return {name: value.tolist() for name, value in read_checkpoint(path)["model"].items()}


def values(folder, after=0):
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [{key: value for key, value in row.items() if key != "timing"} for row in rows if row["step"] > after]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of the same run, native and under lightning."""
    folder = tmp_path_factory.mktemp("digits")
    for use_pl in (False, True):
        digits(folder / str(use_pl), use_pl)
    return {use_pl: folder / str(use_pl) for use_pl in (False, True)}


def test_the_digits_end_with_equal_weights_and_files(runs):
    names = [sorted(path.name for path in (runs[use_pl] / "checkpoints").iterdir()) for use_pl in (False, True)]
    assert names[0] == names[1] == [f"ldm_step-{which}.pth" for which in (14, 28, "best", "last")]
    for name in names[0]:
        assert weights(runs[False] / "checkpoints" / name) == weights(runs[True] / "checkpoints" / name), name
    last = read_checkpoint(str(runs[True] / "checkpoints/ldm_step-last.pth"))
    assert (last["epoch"], last["total_iter"]["train"], last["total_updates"]) == (2, STEPS, 2 * 7)


def test_the_logged_values_are_equal(runs):
    native, lightning = values(runs[False]), values(runs[True])
    assert [row["kind"] for row in native].count("epoch") == 5  # train and eval twice, test
    assert native == lightning


@pytest.mark.parametrize("use_pl", [False, True], ids=["lightning to native", "native to lightning"])
@pytest.mark.parametrize("step", [14, 28])
def test_each_resumes_the_others_checkpoint(runs, tmp_path, use_pl, step):
    other = runs[not use_pl]
    solver = digits(tmp_path, use_pl, resume=str(other / f"checkpoints/ldm_step-{step}.pth"))
    assert solver.train_steps == STEPS
    end = "checkpoints/ldm_step-last.pth"
    assert weights(tmp_path / end) == weights(other / end)
    logged = [row for row in values(tmp_path) if row["kind"] == "epoch"]
    assert logged == [row for row in values(other, after=step) if row["kind"] == "epoch"]


@pytest.mark.parametrize("mode", ["eval", "test"])
def test_eval_and_test_of_the_others_checkpoint(runs, mode):
    outputs = [
        digits(runs[not use_pl], use_pl, mode=mode, resume="best").epoch_outputs[mode] for use_pl in (False, True)
    ]
    assert outputs[0] == outputs[1]
    if mode == "eval":
        assert outputs[0]["acc"] == max(row["values"]["acc"] for row in values(runs[False]) if row["mode"] == "eval")


def scepter(folder, *words):
    command = [sys.executable, "-m", "scepter_core", "run", str(DIGITS), f"SOLVER.WORK_DIR={folder}", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_process_leaves_what_either_can_resume(tmp_path, signum):
    small = [*SMALL, "SOLVER.EVAL_INTERVAL=0", "SOLVER.LR_SCHEDULER=null"]
    small += ["SOLVER.TRAIN_HOOKS=[{NAME: BackwardHook}, {NAME: LogHook}, {NAME: CheckpointHook, INTERVAL: 0, SAVE_LAST: true}]"]
    process = scepter(tmp_path / "run", "ENV.USE_PL=true", "SOLVER.MAX_EPOCHS=100000", *small)
    assert "train epoch 1" in process.stdout.readline()
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + signum, f"stopped by {signum.name}\n")
    (path,) = (tmp_path / "run/checkpoints").iterdir()
    step = int(path.stem.removeprefix("ldm_step-"))
    ends = []
    for use_pl in ("false", "true"):
        words = [f"ENV.USE_PL={use_pl}", "SOLVER.MAX_EPOCHS=100000", f"SOLVER.MAX_STEPS={step + 5}"]
        process = scepter(tmp_path / use_pl, *words, *small, "--resume", str(path))
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
        ends.append(weights(tmp_path / use_pl / "checkpoints/ldm_step-last.pth"))
    assert ends[0] == ends[1]


def test_fast_dev_run_and_a_time_limit(tmp_path):
    process = scepter(tmp_path / "a", "ENV.USE_PL=true", *SMALL, "--fast-dev-run")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("the trial run went well: two steps of each mode, a save, a resume and two more\n")
    words = ["ENV.USE_PL=true", *SMALL, "SOLVER.MAX_EPOCHS=100000", "--max-time", "2s"]
    process = scepter(tmp_path / "b", *words)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "the time limit of --max-time is reached\n")
    assert list((tmp_path / "b/checkpoints").iterdir())


class ByOnes(Engine):
    """Goes through the epochs with a loop of its own, and places the model by hand."""

    placed: list[str] = []

    def set_up(self, solver):
        self.placed.clear()
        assert solver.hooks_dict["train"]

    def place(self, solver, model):
        self.placed.append(type(model).__name__)
        return super().place(solver, model)

    def train(self, solver):
        while solver.reach_next_epoch():
            with solver.train_epoch():
                solver.before_all_iter()
                for batch_idx, batch in solver.train_batches():
                    solver.run_iteration(batch, batch_idx)
                solver.after_all_iter()


def test_an_engine_of_ones_own(configure, recorder, recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(ENGINES, "_registered", {})
    keys = {"EVAL_DATA": {"NAME": "Floats", "VALUES": [1, 2]}, "TRAIN_HOOKS": [{"NAME": "BackwardHook"}, recorder]}
    traces = []
    for use_pl in (False, True):
        (tmp_path / "trace.jsonl").unlink(missing_ok=True)
        ENGINES.register_class("lightning")(ByOnes)
        solver = run(configure(ENV={"DEVICE": "cpu", "USE_PL": use_pl}, **keys), overwrite=True)
        assert isinstance(solver.engine, ByOnes) is use_pl
        assert torch.equal(solver.model.w, torch.tensor(-6.0))
        traces.append(recorded())
    assert len(traces[0]) == 26
    assert traces[0] == traces[1]
    assert ByOnes.placed == ["GradProbe"]
