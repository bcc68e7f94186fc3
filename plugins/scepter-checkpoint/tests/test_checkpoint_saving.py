"""Which files there are, what is in them, and when."""

from __future__ import annotations

import shutil
import threading
import time

import pytest
import torch

from scepter_core import ConfigError, FileSystem, RunError

KEYS = {
    "format", "version", "model", "optimizer", "lr_scheduler", "scaler", "epoch", "iter", "total_iter",
    "total_updates", "position", "window", "data", "rng", "hooks", "metrics", "config",
}  # fmt: skip


@pytest.fixture
def slow_writes(monkeypatch):
    """Every checkpoint takes longer to write than a few steps to train."""
    whole = FileSystem.write_atomic

    def write_atomic(self, path, write):
        def slowly(file):
            write(file)
            if path.endswith(".pth"):
                time.sleep(0.15)

        whole(self, path, slowly)

    monkeypatch.setattr(FileSystem, "write_atomic", write_atomic)


# --- when ----------------------------------------------------------------------------------------------------------


def test_c04_interval_does_not_divide_the_run(probe):
    job = probe(epochs=5, INTERVAL=2, SAVE_LAST=True)
    job.run()
    assert job.names == {"p-6", "p-12", "p-last"}
    assert [job.read(name)["epoch"] for name in ("p-6", "p-12", "p-last")] == [2, 4, 5]
    assert job.weight("p-last") == -15.0


def test_c04_interval_beyond_the_run(probe):
    job = probe(epochs=5, INTERVAL=10, SAVE_LAST=True)
    job.run()
    assert job.names == {"p-last"}
    assert (job.read("p-last")["epoch"], job.weight("p-last")) == (5, -15.0)


def test_without_snapshots_only_best_and_last_are_written(probe):
    job = probe(INTERVAL=1, INTERVAL_STEPS=1, SAVE_LAST=True, SAVE_BEST_BY="-loss", DISABLE_SNAPSHOT=True)
    job.run()
    assert job.names == {"p-best", "p-last"}


@pytest.mark.parametrize("interval", [0, -1])
def test_interval_of_zero_or_less_is_off(probe, interval):
    job = probe(INTERVAL=interval, INTERVAL_STEPS=interval, SAVE_LAST=True)
    job.run()
    assert job.names == {"p-last"}


def test_c29_nothing_is_saved_at_0(probe):
    job = probe(epochs=2, INTERVAL=2)
    job.run()
    assert job.names == {"p-6"}


def test_interval_steps_count_the_steps_of_the_run(probe):
    job = probe(epochs=3, INTERVAL=0, INTERVAL_STEPS=4)
    job.run()
    assert job.names == {"p-4", "p-8"}
    assert [job.weight(name) for name in ("p-4", "p-8")] == [-4.0, -8.0]


def test_intervals_count_steps_where_only_max_steps_limits(probe):
    job = probe(epochs=-1, INTERVAL=2, solver={"MAX_STEPS": 5})
    job.run()
    assert job.names == {"p-2", "p-4"}


def test_interval_left_unset_where_only_max_steps_limits_is_once_at_the_end(probe):
    job = probe(epochs=-1, solver={"MAX_STEPS": 5})
    job.run()
    assert job.names == {"p-5"}
    assert job.weight("p-5") == -5.0


def test_last_stands_after_the_last_eval(probe):
    job = probe(evals=[0.5, 0.75], SAVE_LAST=True)
    job.run()
    assert job.read("p-last")["metrics"]["epoch_outputs"]["eval"] == {"loss": 0.75, "acc": 0.75}


def test_c14_last_is_the_last_state_and_survives_a_move(probe, tmp_path):
    job = probe(epochs=3, evals=[0.9, 0.1, 0.2], SAVE_BEST_BY="acc", SAVE_LAST=True)
    job.run()
    shutil.move(job.work_dir, tmp_path / "elsewhere")
    job.work_dir = tmp_path / "elsewhere"
    assert (job.read("p-last")["epoch"], job.weight("p-last")) == (3, -9.0)
    assert (job.read("p-best")["epoch"], job.weight("p-best")) == (1, -3.0)
    assert not any(path.is_symlink() for path in job.work_dir.rglob("*"))
    assert job.path("p-last").stat().st_nlink == 1


def test_c25_eval_that_fails_leaves_the_weights_of_its_epoch(probe):
    job = probe(epochs=3, evals=[0.5, None, 0.9], SAVE_BEST_BY="acc", SAVE_LAST=True)
    done = job.process()
    assert done.returncode == 1
    assert "the eval fails, as asked" in done.stderr
    assert job.names == {"p-3", "p-6", "p-best"}
    assert (job.read("p-6")["epoch"], job.weight("p-6")) == (2, -6.0)
    assert (job.read("p-best")["epoch"], job.weight("p-best")) == (1, -3.0)


def test_run_that_an_error_ends_writes_nothing_more(probe):
    job = probe(epochs=3, SAVE_LAST=True, hooks=[{"NAME": "Failing", "AT": 5}])
    with pytest.raises(ValueError, match="as asked"):
        job.run()
    assert job.names == {"p-3"}
    assert job.weight("p-3") == -3.0


# --- how many ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [-1, 0])
def test_c13_keep_of_zero_or_less_keeps_all(probe, keep):
    job = probe(epochs=4, KEEP_LAST=keep)
    job.run()
    assert job.names == {"p-3", "p-6", "p-9", "p-12"}


def test_keep_last_keeps_the_newest_by_number_and_never_best_or_last(probe):
    job = probe([1.0], epochs=12, evals=[9.0] + [1.0] * 11, KEEP_LAST=2, SAVE_LAST=True, SAVE_BEST_BY="acc")
    job.run()
    assert job.names == {"p-11", "p-12", "p-last", "p-best"}
    assert job.read("p-best")["epoch"] == 1


def test_keep_last_leaves_files_that_are_not_its_own(probe):
    job = probe(epochs=1)
    job.run()
    foreign = ["q-1", "p-x", "p-1-1", "pp-1", "p-2.5"]
    for name in foreign:
        shutil.copy(job.path("p-3"), job.path(name))
    (job.work_dir / "checkpoints" / "p-1.txt").write_text("mine")
    job.run(
        f"SOLVER.RESUME_FROM={job.path('p-3')}",
        "SOLVER.MAX_EPOCHS=3",
        "SOLVER.TRAIN_HOOKS[CheckpointHook].KEEP_LAST=1",
    )
    assert job.names == {*foreign, "p-1.txt", "p-9"}


def test_keep_last_counts_the_files_of_an_earlier_process(probe):
    job = probe(epochs=3, KEEP_LAST=2)
    job.run()
    job.run("SOLVER.RESUME_FROM=auto", "SOLVER.MAX_EPOCHS=4")
    assert job.names == {"p-9", "p-12"}


def test_keep_last_never_removes_the_file_just_written(probe, recorder):
    # gone back to an earlier step: the files of the old way are further, and the new one is the one that counts
    job = probe(epochs=4)
    job.run()
    overrides = (f"SOLVER.RESUME_FROM={job.path('p-3')}", "SOLVER.MAX_EPOCHS=2")
    solver = job.run(*overrides, "SOLVER.TRAIN_HOOKS[CheckpointHook].KEEP_LAST=1")
    assert [path for path, _, _ in recorder(solver).checkpoints] == [str(job.path("p-6"))]
    assert "p-6" in job.names


# --- their names ---------------------------------------------------------------------------------------------------


def test_default_prefix(probe):
    job = probe(epochs=1, SAVE_NAME_PREFIX=None, SAVE_LAST=True)
    job.run()
    assert job.names == {"ldm_step-3", "ldm_step-last"}


def test_two_hooks_with_two_prefixes(probe):
    other = {"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "q", "INTERVAL": 2, "SAVE_BEST_BY": "-acc"}
    job = probe(evals=[0.2, 0.1], SAVE_BEST_BY="+acc", hooks=[other])
    job.run()
    assert job.names == {"p-3", "p-6", "q-6", "p-best", "q-best"}
    assert (job.read("p-best")["epoch"], job.read("q-best")["epoch"]) == (1, 2)

    job.run("SOLVER.RESUME_FROM=auto", "SOLVER.MAX_EPOCHS=2")
    states = job.read("q-best")["hooks"]
    assert [states[f"train/CheckpointHook:{prefix}"]["state"]["best"] for prefix in "pq"] == [0.2, 0.1]


def test_two_hooks_do_not_take_each_others_temporary_files(probe, slow_writes):
    other = {"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "q", "PRIORITY": 310}
    job = probe(epochs=2, hooks=[other])
    job.run()
    assert job.names == {"p-3", "p-6", "q-3", "q-6"}


@pytest.mark.parametrize("mode", ["TRAIN_HOOKS", "EVAL_HOOKS"])
def test_one_prefix_twice(probe, mode):
    other = {"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "p"}
    keys = {"hooks": [other]} if mode == "TRAIN_HOOKS" else {"evals": [0.1, 0.2], "eval_hooks": [other]}
    job = probe(**keys)
    with pytest.raises(ConfigError) as caught:
        job.run()
    assert "SAVE_NAME_PREFIX" in str(caught.value)
    assert not job.work_dir.exists()


def test_the_default_prefix_twice(probe):
    with pytest.raises(ConfigError, match="SAVE_NAME_PREFIX"):
        probe(SAVE_NAME_PREFIX=None, hooks=[{"NAME": "CheckpointHook"}]).run()


@pytest.mark.parametrize(
    "prefix", ["../out", "a/b", "/abs", "..", ".hidden", "", "a\\b", "C:x", "what?", "a\nb", "a\0b", "~/x"]
)
def test_prefix_that_is_no_plain_name(probe, tmp_path, prefix):
    job = probe(SAVE_NAME_PREFIX=prefix)
    with pytest.raises(ConfigError) as caught:
        job.run()
    assert "SAVE_NAME_PREFIX" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    assert not job.work_dir.exists()


# --- what is in them -----------------------------------------------------------------------------------------------


def test_keys_of_the_file(dropnet):
    job = dropnet(epochs=2, SAVE_BEST_BY="acc")
    job.run()
    state = torch.load(job.path("p-last"), weights_only=True)
    assert state.keys() == KEYS
    assert state["model"].keys() == {
        "0.weight", "0.bias", "3.weight", "3.bias",
        *(f"1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")),
    }  # fmt: skip
    assert (state["epoch"], state["iter"], state["total_updates"]) == (2, 4, 8)
    assert state["total_iter"] == {"train": 8, "eval": 4, "test": 0}
    assert (
        state["position"].items() >= {"mode": "train", "in_epoch": False, "cut": False, "pending": []}.items()
    )
    assert state["optimizer"].keys() >= {"state", "param_groups"}
    assert state["lr_scheduler"] is None
    assert state["scaler"] is None
    assert state["window"] is None
    assert state["rng"]["rank0"].keys() >= {"python", "numpy", "torch"}
    assert state["hooks"]["train/Stateful"]["state"] == {"count": 7}
    assert "scepter-checkpoint" in state["hooks"]["train/CheckpointHook:p"]["origin"]
    assert state["hooks"]["train/CheckpointHook:p"]["state"]["best"] == pytest.approx(
        max(job.read(name)["metrics"]["epoch_outputs"]["eval"]["acc"] for name in ("p-best", "p-last"))
    )
    assert state["metrics"]["epoch_outputs"].keys() == {"train", "eval"}
    assert "SAVE_NAME_PREFIX: p" in state["config"]


def test_counts_of_a_file_in_mid_epoch(probe):
    job = probe(epochs=2, INTERVAL=0, INTERVAL_STEPS=4)
    job.run()
    state = job.read("p-4")
    assert (state["epoch"], state["iter"], state["total_updates"]) == (2, 1, 4)
    assert state["total_iter"]["train"] == 4
    assert (
        state["position"].items() >= {"mode": "train", "in_epoch": True, "cut": False, "pending": []}.items()
    )


def test_file_is_the_state_of_its_moment_though_training_goes_on(probe, slow_writes):
    job = probe(epochs=2, INTERVAL=0, INTERVAL_STEPS=1)
    job.run()
    assert [job.weight(f"p-{step}") for step in range(1, 7)] == [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]


def test_written_in_the_foreground_and_in_the_background_is_the_same(dropnet, differences):
    jobs = [dropnet(folder=str(on), epochs=2, ASYNC=on) for on in (True, False)]
    for job in jobs:
        job.run()
    assert jobs[0].names == jobs[1].names == {"p-4", "p-8", "p-last"}
    for name in jobs[0].names:
        assert differences(jobs[0].read(name), jobs[1].read(name)) == []


@pytest.mark.parametrize("background", [True, False])
def test_hook_whose_state_is_an_object_is_named(probe, background):
    job = probe(hooks=[{"NAME": "Stateful", "KIND": "object"}], ASYNC=background)
    with pytest.raises(RunError) as caught:
        job.run()
    assert "hooks.train/Stateful.state.inner.list[1]" in str(caught.value)
    assert "builtins.object" in str(caught.value)
    assert job.names == set()


# --- on_checkpoint -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [True, False])
def test_on_checkpoint_comes_for_every_file_when_it_is_whole(probe, recorder, background):
    job = probe(evals=[0.5, 0.4], SAVE_BEST_BY="acc", SAVE_LAST=True, ASYNC=background)
    notes = recorder(job.run()).checkpoints  # the hook has read each file at the time
    assert [(path, kind) for path, kind, _ in notes] == [
        (str(job.path("p-3")), "step"),
        (str(job.path("p-best")), "best"),
        (str(job.path("p-6")), "step"),
        (str(job.path("p-last")), "last"),
    ]
    assert [float(state["model"]["w"]) for _, _, state in notes] == [-3.0, -3.0, -6.0, -6.0]


def test_on_checkpoint_never_names_a_file_that_is_gone(probe, recorder, monkeypatch):
    # The first write outlasts a step, the second does not: both are done, and the first file removed, before anyone asks.
    whole = FileSystem.write_atomic

    def write_atomic(self, path, write):
        whole(self, path, write)
        if path.endswith("p-1.pth"):
            time.sleep(0.3)

    monkeypatch.setattr(FileSystem, "write_atomic", write_atomic)
    job = probe([1.0] * 4, epochs=1, data={"SECONDS": 0.1}, INTERVAL=0, INTERVAL_STEPS=1, KEEP_LAST=1)
    notes = recorder(
        job.run()
    ).checkpoints  # the hook reads each file at the time: one that is gone would have raised
    assert job.names == {"p-4"}
    assert notes[-1][0] == str(job.path("p-4"))


def test_on_checkpoint_reaches_the_hooks_of_every_mode(probe):
    job = probe(evals=[0.5, 0.4], eval_hooks=[{"NAME": "Recorder"}])
    solver = job.run()
    assert [kind for _, kind, _ in solver.hooks_dict["eval"][1].checkpoints] == ["step", "step"]


# --- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch):
    """From the second checkpoint on, the disk is full."""
    whole, writes = FileSystem.write_atomic, []

    def write_atomic(self, path, write):
        def refuse(file):
            raise OSError(28, "No space left on device")

        if path.endswith(".pth"):
            writes.append(threading.current_thread() is threading.main_thread())
        whole(self, path, refuse if path.endswith(".pth") and len(writes) > 1 else write)

    monkeypatch.setattr(FileSystem, "write_atomic", write_atomic)
    return writes


@pytest.mark.parametrize("background", [True, False])
def test_failed_write_ends_the_run_and_names_file_and_reason(probe, full_disk, recorder, background):
    job = probe([1.0] * 50, epochs=3, KEEP_LAST=1, ASYNC=background)
    with pytest.raises(RunError) as caught:
        job.run()
    assert str(job.path("p-100")) in str(caught.value)
    assert "No space left on device" in str(caught.value)
    assert caught.value.exit_status == 1
    assert "CheckpointHook (scepter-checkpoint" in "\n".join(caught.value.__notes__)
    assert job.names == {"p-50"}, "the good one stays, and no temporary file"
    assert job.weight("p-50") == -50.0
    assert full_disk == [not background] * 2, "nothing more was tried"


@pytest.mark.parametrize("background", [True, False])
def test_whatever_a_write_raises_ends_the_run(probe, monkeypatch, background):
    whole = FileSystem.write_atomic

    def write_atomic(self, path, write):
        if path.endswith(".pth"):
            raise RuntimeError("as asked")
        whole(self, path, write)

    monkeypatch.setattr(FileSystem, "write_atomic", write_atomic)
    job = probe(epochs=1, ASYNC=background)
    with pytest.raises(Exception, match="as asked"):
        job.run()


def test_failed_write_of_the_last_file_fails_the_run(probe, full_disk):
    job = probe(INTERVAL=2, SAVE_LAST=True)
    with pytest.raises(RunError, match="p-last"):
        job.run()
    assert job.names == {"p-6"}


def test_what_a_writer_that_died_left_is_removed_at_the_next_save(probe):
    job = probe(epochs=1)
    folder = job.work_dir / "checkpoints"
    folder.mkdir(parents=True)
    (folder / ".p-3.pth.4711.tmp").write_bytes(b"half")
    (folder / ".other").write_bytes(b"mine")
    (folder / "notes.tmp").write_bytes(b"mine")
    job.run()
    assert job.names == {"p-3", ".other", "notes.tmp"}


@pytest.mark.parametrize("background", [True, False])
def test_a_failed_write_that_only_warns(probe, full_disk, background):
    job = probe(INTERVAL=1, epochs=3, ASYNC=background, ON_SAVE_ERROR="warn")
    solver = job.run()
    assert solver.epoch == 3
    assert job.names == {"p-3"}
