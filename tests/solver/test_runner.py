"""Runs from Python: what is refused, what is left behind, eval and test with the weights of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scepter_core import ConfigError, RunError, load_config, read_checkpoint, run
from scepter_core.runner import fast_dev_run

SAVING = [{"NAME": "BackwardHook"}, {"NAME": "CheckpointHook", "SAVE_LAST": True}]


def _files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_a_second_run_in_the_same_folder_stops_and_loses_nothing(configure, tmp_path):
    config = configure(TRAIN_HOOKS=SAVING)
    run(config)
    before = _files(tmp_path / "run")
    with pytest.raises(ConfigError, match="--resume auto goes on from the newest; --overwrite removes") as caught:
        run(config)
    assert caught.value.exit_status == 2
    assert _files(tmp_path / "run") == before
    run(config, ["SOLVER.MAX_EPOCHS=1"], overwrite=True)
    assert sorted(_files(tmp_path / "run")) == [
        "checkpoints/ldm_step-3.pth",
        "checkpoints/ldm_step-last.pth",
        "config.yaml",
        "std_log.txt",
    ]


@pytest.mark.parametrize("resume", ["auto", "checkpoints/ldm_step-3.pth"])
def test_overwriting_what_is_resumed_is_refused(configure, tmp_path, resume):
    config = configure(TRAIN_HOOKS=SAVING)
    run(config)
    before = _files(tmp_path / "run")
    with pytest.raises(ConfigError, match="the run would go on from what overwriting removes"):
        run(config, resume=resume if resume == "auto" else str(tmp_path / "run" / resume), overwrite=True)
    assert _files(tmp_path / "run") == before


def test_leftovers_of_a_process_that_was_killed_are_removed_and_nothing_else(configure, tmp_path):
    left, stay = ["run/.config.yaml.17.tmp", "run/eval/.1.safetensors.17.tmp"], ["run/.mine.tmp", "run/eval/mine.tmp"]
    for name in (*left, *stay):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    run(configure(TRAIN_HOOKS=SAVING), resume="auto")
    assert [name for name in (*left, *stay) if (tmp_path / name).exists()] == stay


def test_resuming_a_finished_run_touches_nothing(configure, tmp_path, capsys):
    config = configure(TRAIN_HOOKS=SAVING)
    run(config)
    before = _files(tmp_path / "run")
    solver = run(config, resume="auto")
    assert solver.nothing_to_do
    assert _files(tmp_path / "run") == before
    assert "the run is finished: epoch 2, step 6, update 6. Nothing to do" in capsys.readouterr().out


def test_the_saved_configuration_repeats_the_run_to_the_bit(configure, tmp_path):
    first = run(configure(TRAIN_DATA={"NAME": "Floats", "VALUES": [0.1, 0.2, 0.7]}, TRAIN_HOOKS=SAVING))
    again = run(tmp_path / "run" / "config.yaml", [f"SOLVER.WORK_DIR={tmp_path / 'again'}"])
    assert torch.equal(first.model.w, again.model.w)
    saved = [tmp_path / name / "config.yaml" for name in ("run", "again")]
    texts = [path.read_text().replace(str(tmp_path / "again"), str(tmp_path / "run")) for path in saved]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("mode", ["eval", "test"])
def test_eval_and_test_take_the_weights_and_change_nothing(configure, tmp_path, mode):
    data = {"NAME": "Floats", "VALUES": [2, 4]}
    config = configure(TRAIN_HOOKS=SAVING, EVAL_DATA=data, TEST_DATA=data)
    run(config)
    before = _files(tmp_path / "run")
    results = []
    for _ in range(2):
        solver = run(config, mode=mode)
        results.append(solver.epoch_outputs[mode])
        assert (float(solver.model.w), solver.train_steps, solver.total_updates) == (-6.0, 6, 6)
        assert solver.model.w.grad is None
    assert results == [{"loss": -18.0, "mean": 3.0}] * 2
    after = _files(tmp_path / "run")
    assert {name: text for name, text in after.items() if name != "std_log.txt"} == {
        name: text for name, text in before.items() if name != "std_log.txt"
    }
    earlier = run(config, mode=mode, resume=str(tmp_path / "run" / "checkpoints" / "ldm_step-3.pth"))
    assert earlier.epoch_outputs[mode] == {"loss": -9.0, "mean": 3.0}


def test_a_work_dir_that_cannot_be_is_refused(configure, tmp_path):
    (tmp_path / "file").write_text("mine")
    for work_dir in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"SOLVER.WORK_DIR: {tmp_path / 'file'} is not a folder"):
            run(configure(WORK_DIR=str(work_dir)))
    assert (tmp_path / "file").read_text() == "mine"


def test_eval_without_a_checkpoint_warns_loudly(configure, capsys):
    solver = run(configure(EVAL_DATA={"NAME": "Floats", "VALUES": [2, 4]}), mode="eval")
    assert float(solver.model.w) == 0.0
    assert "NO CHECKPOINT in" in capsys.readouterr().out


def test_resume_from_without_a_hook_that_loads_is_refused(configure):
    with pytest.raises(ConfigError, match="no hook of the run loads checkpoints"):
        run(configure(RESUME_FROM="auto"))


def test_training_without_a_backward_hook_warns(configure, capsys):
    solver = run(configure(TRAIN_HOOKS=[]))
    assert float(solver.model.w) == 0.0
    assert "no hook in TRAIN_HOOKS computes gradients" in capsys.readouterr().out


def test_a_scheduler_that_nobody_drives_warns(configure, capsys):
    run(configure(LR_SCHEDULER={"NAME": "StepLR", "STEP_SIZE": 1}))
    assert "no hook in TRAIN_HOOKS drives LR_SCHEDULER" in capsys.readouterr().out


def test_fast_dev_run_leaves_nothing(configure, tmp_path):
    solver = fast_dev_run(
        configure(
            TRAIN_HOOKS=SAVING,
            EVAL_DATA={"NAME": "Floats", "VALUES": [1, 2, 3, 4]},
            TEST_DATA={"NAME": "Floats", "VALUES": [1, 2, 3, 4]},
        )
    )
    assert (float(solver.model.w), solver.train_steps) == (-4.0, 4)
    assert solver.epoch_outputs["test"]["mean"] == 1.5
    assert not (tmp_path / "run").exists()


def test_fast_dev_run_leaves_no_event_files_where_log_dir_says(configure, tmp_path):
    writer = {"NAME": "TensorboardLogHook", "LOG_INTERVAL": 1}
    hooks = [*SAVING, {**writer, "LOG_DIR": str(tmp_path / "events")}]
    solver = fast_dev_run(configure(TRAIN_HOOKS=hooks, EVAL_HOOKS=[{**writer, "LOG_DIR": str(tmp_path / "others")}]))
    assert solver.train_steps == 4
    assert not list(tmp_path.iterdir())


def test_a_configuration_in_hand_can_be_run(configure):
    solver = run(load_config(configure()))
    assert float(solver.model.w) == -6.0


def test_bad_weights_are_told_and_nothing_is_loaded(configure, tmp_path):
    run(configure(TRAIN_HOOKS=SAVING))
    other = configure(
        TRAIN_DATA={"NAME": "Rows", "BATCH_SIZE": 4},
        MODEL={"NAME": "NormDropNet"},
        TRAIN_HOOKS=SAVING,
        WORK_DIR=str(tmp_path / "other"),
    )
    with pytest.raises(RunError, match=r"the checkpoint is of another model; it lacks: net\.0\.bias"):
        run(other, resume=str(tmp_path / "run" / "checkpoints" / "ldm_step-last.pth"))
    assert not (tmp_path / "other" / "checkpoints").exists()


def test_a_resume_from_the_best_owes_nothing(configure, tmp_path):
    """The best is saved when its metric is final: before that epoch's `after_epoch`, which the resumed run makes up for."""
    from scepter_core import HOOKS, Hook

    ends = []

    @HOOKS.register_class()
    class EndNoter(Hook):
        def after_epoch(self, solver):
            ends.append((solver.mode, solver.epoch))

    def config(epochs, monitored_by_eval):
        saving = {"NAME": "CheckpointHook", "INTERVAL": 1, "SAVE_BEST_BY": "-loss"}
        return configure(
            MAX_EPOCHS=epochs,
            TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "EndNoter"}, saving],
            EVAL_HOOKS=[{"NAME": "EndNoter"}],
            **({"EVAL_DATA": {"NAME": "Floats", "VALUES": [1]}} if monitored_by_eval else {}),
        )

    for by_eval in (True, False):
        run(config(2, by_eval), overwrite=True)
        best = tmp_path / "run" / "checkpoints" / "ldm_step-best.pth"
        step = tmp_path / "run" / "checkpoints" / "ldm_step-6.pth"
        step.unlink()
        ends.clear()
        solver = run(config(3, by_eval), resume=str(best))
        first = ("eval", 2) if by_eval else ("train", 2)
        assert ends == [first, ("train", 3), *([("eval", 3)] if by_eval else [])]
        assert float(solver.model.w.detach()) == -9.0
        if not by_eval:
            assert read_checkpoint(str(step))["epoch"] == 2  # the interval's file of that epoch is there again


def test_two_checkpoint_hooks_decide_before_either_saves(configure, tmp_path):
    def config(epochs):
        hooks = [
            {"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "a", "SAVE_BEST_BY": "+mean", "INTERVAL": 0},
            {"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "b", "SAVE_BEST_BY": "+loss", "INTERVAL": 0},
        ]
        return configure(MAX_EPOCHS=epochs, TRAIN_HOOKS=[{"NAME": "BackwardHook"}, *hooks])

    run(config(1))
    folder = tmp_path / "run" / "checkpoints"
    kept = (folder / "b-best.pth").read_bytes()
    run(config(3), resume=str(folder / "a-best.pth"))
    assert (folder / "b-best.pth").read_bytes() == kept  # the loss only falls: epoch 1 stays b's best


def test_a_plateau_sees_the_eval_that_a_stop_left_over(configure, tmp_path):
    from scepter_core import HOOKS, Hook, Stopped

    @HOOKS.register_class()
    class StopOnce(Hook):
        asked = False

        def after_epoch(self, solver):
            if solver.epoch == 3 and not StopOnce.asked:
                StopOnce.asked = True
                solver.request_stop(15)

    def config(folder, *more):
        return configure(
            WORK_DIR=str(tmp_path / folder),
            MAX_EPOCHS=3,
            EVAL_DATA={"NAME": "Floats", "VALUES": [-1, -1]},
            LR_SCHEDULER={"NAME": "ReduceLROnPlateau", "MONITOR": "loss", "PATIENCE": 0},
            TRAIN_HOOKS=[
                {"NAME": "BackwardHook"},
                {"NAME": "LrHook", "WARMUP_FUNC": None},
                {"NAME": "CheckpointHook", "SAVE_LAST": True},
                *more,
            ],
        )

    run(config("straight"))
    with pytest.raises(Stopped):
        run(config("stopped", {"NAME": "StopOnce"}))
    run(config("stopped"), resume="auto")
    ends = [
        read_checkpoint(str(tmp_path / name / "checkpoints" / "ldm_step-last.pth")) for name in ("straight", "stopped")
    ]
    assert ends[0]["lr_scheduler"] == ends[1]["lr_scheduler"]
    assert ends[0]["lr_scheduler"]["last_epoch"] == 3


def test_an_open_window_is_finished_as_it_began(configure, tmp_path):
    def config(accumulate):
        return configure(
            TRAIN_DATA={"NAME": "Floats", "VALUES": [1] * 6, "SHUFFLE": False},
            MAX_EPOCHS=1,
            TRAIN_HOOKS=[
                {"NAME": "BackwardHook", "ACCUMULATE_STEP": accumulate},
                {"NAME": "CheckpointHook", "INTERVAL_STEPS": 1},
            ],
        )

    run(config(3))
    solver = run(config(2), resume=str(tmp_path / "run" / "checkpoints" / "ldm_step-1.pth"))
    assert (solver.total_updates, float(solver.model.w.detach())) == (3, -3.0)  # windows of 3, 2 and 1


@pytest.mark.parametrize("name", ["../log.txt", "/tmp/log.txt", ".", "..", "a/../../log.txt", "a\0b", "logs/.."])
def test_a_log_file_does_not_leave_the_folder(configure, tmp_path, name):
    with pytest.raises(ConfigError, match="LOG_FILE: must be a "):
        run(configure(LOG_FILE=name), overwrite=True)
    assert not list(tmp_path.iterdir())


def test_a_log_file_below_the_folder_is_one_of_the_run(configure, tmp_path):
    hooks = [{"NAME": "BackwardHook"}, {"NAME": "LogHook"}, {"NAME": "CheckpointHook"}]
    run(configure(LOG_FILE="logs/run.txt", TRAIN_HOOKS=hooks))
    run(configure(LOG_FILE="logs/run.txt", TRAIN_HOOKS=hooks, MAX_EPOCHS=1), overwrite=True)
    text = (tmp_path / "run/logs/run.txt").read_text()
    assert "train epoch 1/1" in text
    assert "train epoch 1/2" not in text, "nothing of the run that was overwritten"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"WORK_DIR": "a\0b"}, "SOLVER.WORK_DIR: must be a path"),
        ({"WORK_DIR": "a" * 300}, "SOLVER.WORK_DIR: cannot be a folder"),
        ({"RESUME_FROM": "a\0b"}, "SOLVER.RESUME_FROM: must be a path"),
        ({"TRAIN_HOOKS": [{"NAME": "TensorboardLogHook", "LOG_DIR": "a\0b"}]}, r"TRAIN_HOOKS\[0\].LOG_DIR: must be a path"),
        ({"TRAIN_HOOKS": [{"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "a" * 201}]}, "SAVE_NAME_PREFIX: must be 200 bytes"),
        ({"TRAIN_HOOKS": [{"NAME": "SafetensorsHook", "SAVE_NAME_PREFIX": "é" * 101}]}, "SAVE_NAME_PREFIX: must be 200 bytes"),
    ],
)
def test_paths_that_no_file_system_takes(configure, changed, said):
    with pytest.raises(ConfigError, match=said):
        run(configure(**changed))


@pytest.mark.parametrize("plugin", ["a\0b.py", "/a\0b.py", "./" + "a" * 300 + ".py"])
def test_a_plugin_that_no_file_system_takes(configure, plugin):
    with pytest.raises(ConfigError, match="no such file: "):
        run({**configure(), "PLUGINS": [plugin]})


def test_metric_names_are_no_paths(configure, tmp_path):
    """Whatever they are called, they name values in files, and no files."""
    name = "../../out\0/x"
    hooks = [{"NAME": "BackwardHook"}, {"NAME": "LogHook"}, {"NAME": "TensorboardLogHook", "LOG_INTERVAL": 1},
             {"NAME": "CheckpointHook", "SAVE_BEST_BY": name}]  # fmt: skip
    metric = {"NAME": "LastValue", "KEYS": ["x"], "LOG_NAME": name}
    data = {"NAME": "Floats", "VALUES": [1]}
    run(configure(TRAIN_HOOKS=hooks, METRICS=[metric], EVAL_DATA=data, SAVE_EVAL_DATA=True, MAX_EPOCHS=1))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert name in read_checkpoint(str(tmp_path / "run/checkpoints/ldm_step-best.pth"))["metrics"]["epoch_outputs"]["eval"]
    assert [path.name for path in (tmp_path / "run/eval").iterdir()] == ["1.safetensors"]
