"""What TensorBoard shows of whole runs."""

from __future__ import annotations

import gc
import math
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
import yaml

from scepter_core import BaseSolver, ConfigError, FileSystem, RunError, load_config
from scepter_tensorboard import TensorboardLogHook

ONE_TO_TEN = list(range(1, 11))
README = Path(__file__).parents[1] / "README.md"


def test_e02_tags_and_the_axis_of_eval(train):
    board = train([1.0, 2.0, 3.0, 4.0], epochs=3, eval_values=[5.0, 6.0])
    assert board.tags == [
        "eval/epoch/loss", "train/epoch/loss", "train/iter/loss", "train/iter/pg0_lr",
    ]  # fmt: skip
    assert board.points("eval/epoch/loss") == [(4, 5.5), (8, 5.5), (12, 5.5)]
    assert board.points("train/epoch/loss") == [(4, 2.5), (8, 2.5), (12, 2.5)]
    assert board.points() == [(step, float((step - 1) % 4 + 1)) for step in range(1, 13)]
    assert board.solver.total_updates == 12


def test_e03_output_that_is_no_scalar(train):
    board = train([1.0] * 5, kind="odd", epochs=2)
    assert board.tags == ["train/epoch/loss", "train/iter/loss", "train/iter/pg0_lr"]
    named = [line for line in board.lines if "is no scalar" in line]
    assert named == [
        "output logits is no scalar (Tensor of shape [4, 3]): not written to TensorBoard",
        "output name is no scalar (str): not written to TensorBoard",
        "output nothing is no scalar (NoneType): not written to TensorBoard",
        "output list is no scalar (list): not written to TensorBoard",
    ]


def test_numbers_of_every_kind(train):
    board = train([1.0] * 2, interval=2, kind="numbers")
    assert board.points("train/iter/count") == [(2, 3.0)]
    assert board.points("train/iter/half") == [(2, 0.5)]
    assert board.points("train/iter/step") == [(2, 7.0)]
    assert not [tag for tag in board.tags if "flag" in tag or "truth" in tag]
    assert [line.split()[1] for line in board.lines if "is no scalar" in line] == ["flag", "truth"]


def test_e06_windows_and_the_rest_of_the_epoch(train):
    assert train(ONE_TO_TEN, interval=4).points() == [(4, 2.5), (8, 6.5), (10, 9.5)]
    assert train([1, 2, 3], name="short", interval=10, epochs=2).points() == [(3, 2.0), (6, 2.0)]
    assert train(ONE_TO_TEN, name="even", interval=5).points() == [(5, 3.0), (10, 8.0)]


@pytest.mark.parametrize("interval", [0, -1])
def test_e07_an_interval_that_is_off(train, interval):
    board = train(ONE_TO_TEN, interval=interval, eval_values=[5])
    assert board.everything == {"train/epoch/loss": [(10, 5.5)], "eval/epoch/loss": [(10, 5.0)]}
    without = train(ONE_TO_TEN, name="without", eval_values=[5], hook=None)
    assert board.solver.total_updates == 10
    assert torch.equal(board.solver.model.weight, without.solver.model.weight)


def test_e09_no_graph_is_kept(train, monkeypatch):
    alive, most = weakref.WeakSet(), 0
    after_iter = TensorboardLogHook.after_iter

    def watched(self, solver):
        nonlocal most
        alive.add(solver.loss)
        after_iter(self, solver)
        most = max(most, len(alive))

    monkeypatch.setattr(TensorboardLogHook, "after_iter", watched)
    train([1.0] * 200, interval=1000)
    assert most <= 2


def test_e10_means_weigh_by_samples(train):
    board = train([10, 10, 9], batch_size=2, interval=1000, eval_values=[10, 10, 9])
    for tag in ("train/iter/loss", "train/epoch/loss", "eval/epoch/loss"):
        assert board.points(tag) == [(2, pytest.approx(29 / 3))]


def test_a_long_window_stays_small(train, monkeypatch):
    alive = []
    after_iter = TensorboardLogHook.after_iter

    def watched(self, solver):
        after_iter(self, solver)
        if solver.train_steps in (1, 500):
            alive.append(sum(type(found) is torch.Tensor for found in gc.get_objects()))

    monkeypatch.setattr(TensorboardLogHook, "after_iter", watched)
    train([1.0] * 501, interval=1000)
    assert alive[1] < alive[0] + 250  # 128 values may wait to be summed, here and in the epoch's means


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a13_accumulation_does_not_change_what_is_shown(train, accumulate):
    board = train([4.0] * 8, ACCU_STEP=accumulate)
    assert board.points() == [(step, 4.0) for step in range(1, 9)]
    assert board.solver.total_updates == 8 // accumulate


def test_weights_are_equal_with_and_without_the_hook(train):
    values = [0.1, 0.7, 0.3, 0.9, 0.2]
    shuffled = {"epochs": 3, "eval_values": [1.0], "interval": 2, "data": {"SHUFFLE": True}}
    board, without = train(values, **shuffled), train(values, name="without", hook=None, **shuffled)
    assert torch.equal(board.solver.model.weight, without.solver.model.weight)
    assert not without.folder.exists()


def test_long_windows_are_exact(train):
    assert train(list(range(1, 301)), interval=1000).points() == [(300, 150.5)]


def test_a_tensor_that_the_model_changes_in_place_is_read_as_it_was(train):
    assert train([1.0] * 4, interval=4, kind="buffer").points("train/iter/seen") == [(4, 2.5)]


def test_an_output_of_some_steps_is_averaged_over_those(train):
    board = train([1.0, 2.0, 3.0, 4.0], interval=4, kind="sometimes")
    assert board.points("train/iter/extra") == [(4, 20.0)]


def test_values_that_are_not_finite_are_written_as_they_are(train):
    (_, first), (_, second), (_, third) = train([1.0] * 3, kind="wild").points("train/iter/wild")
    assert math.isnan(first)
    assert (second, third) == (math.inf, -math.inf)


def test_the_learning_rate_is_that_of_the_write(train):
    assert train([1.0] * 4, interval=3).points("train/iter/pg0_lr") == [(3, 0.25), (4, 0.25)]


def test_steps_that_only_max_steps_limits(train):
    board = train(ONE_TO_TEN, interval=4, epochs=-1, MAX_STEPS=13)
    assert board.steps() == [4, 8, 10, 13]
    assert board.steps("train/epoch/loss") == [10, 13]


def test_a_window_ends_with_the_inner_epoch_of_a_fold(train):
    board = train([1, 2, 3], interval=2, epochs=2, NUM_FOLDS=2)
    assert board.points() == [(2, 1.5), (3, 3.0), (5, 1.5), (6, 3.0)]
    assert board.steps("train/epoch/loss") == [6]


def test_a_loop_that_does_not_say_which_iteration_is_the_last(train):
    board = train([1, 2, 3], interval=2, epochs=2, NAME="BoardTestSolver")
    assert board.points() == [(2, 1.5), (3, 3.0), (5, 1.5), (6, 3.0)]


def test_the_device_is_asked_once_a_write(train, monkeypatch):
    asked = []
    for name in ("tolist", "item", "__float__", "__bool__", "cpu", "numpy"):
        original = getattr(torch.Tensor, name)

        def spy(self, *arguments, _name=name, _original=original):
            caller = sys._getframe(1).f_code.co_filename
            if "scepter_tensorboard" in caller:
                asked.append(_name)
            return _original(self, *arguments)

        monkeypatch.setattr(torch.Tensor, name, spy)
    board = train([1.0] * 10, interval=4, kind="buffer")
    assert board.steps() == [4, 8, 10]
    assert asked == ["tolist"] * 3


def test_one_hook_writes_every_mode(train):
    board = train([1.0] * 2, eval_values=[2.0], TEST_DATA={"NAME": "BoardTestData", "VALUES": [7.0]})
    assert board.points("eval/epoch/loss") == [(2, 2.0)]
    assert board.points("test/epoch/loss") == [(2, 7.0)]


def test_hooks_of_several_modes_share_one_file(train):
    listed = {"NAME": "TensorboardLogHook", "LOG_INTERVAL": 1}
    board = train(
        [1.0, 2.0], eval_values=[2.0, 4.0], eval_hooks=[listed], TEST_HOOKS=[listed],
        TEST_DATA={"NAME": "BoardTestData", "VALUES": [7.0]},
    )  # fmt: skip
    assert len(board.files) == 1
    assert board.everything == {
        "train/iter/loss": [(1, 1.0), (2, 2.0)],
        "train/iter/pg0_lr": [(1, 0.25), (2, 0.25)],
        "train/epoch/loss": [(2, 1.5)],
        "eval/epoch/loss": [(2, 3.0)],
        "test/epoch/loss": [(2, 7.0)],
    }


def test_a_hook_that_only_eval_has(train):
    board = train([1.0], eval_values=[2.0], hook=None, eval_hooks=[{"NAME": "TensorboardLogHook"}])
    assert board.everything == {"train/epoch/loss": [(1, 1.0)], "eval/epoch/loss": [(1, 2.0)]}


def test_eval_into_a_folder_of_its_own(train, tmp_path):
    apart = {"NAME": "TensorboardLogHook", "LOG_DIR": str(tmp_path / "apart")}
    board = train([1.0], eval_values=[2.0], eval_hooks=[apart])
    assert "eval/epoch/loss" not in board.everything
    board.folder = tmp_path / "apart"
    assert board.everything == {"eval/epoch/loss": [(1, 2.0)]}


def test_two_folders_of_one_mode_get_the_same(train, tmp_path):
    other = {"NAME": "TensorboardLogHook", "LOG_INTERVAL": 1, "LOG_DIR": str(tmp_path / "other")}
    board = train([1.0, 2.0], eval_values=[2.0], more=[other], kind="odd")
    first = board.everything
    board.folder = tmp_path / "other"
    assert {tag: points for tag, points in first.items() if not tag.startswith("eval")} == board.everything
    assert first["eval/epoch/loss"] == [(2, 2.0)]
    assert len([line for line in board.lines if "output logits is no scalar" in line]) == 1


def test_two_hooks_of_one_mode_and_folder_are_an_error(train, tmp_path):
    board = train(
        [1.0],
        more=[{"NAME": "TensorboardLogHook", "LOG_DIR": str(tmp_path / "run" / "x" / ".." / "tensorboard")}],
        fails=ConfigError,
    )
    (problem,) = board.solver.problems
    assert problem.path == "SOLVER.TRAIN_HOOKS[3].LOG_DIR"
    assert "another TensorboardLogHook of the same mode writes to" in problem.message


def test_log_dir_is_relative_to_the_current_folder(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    board = train([1.0], hook={"LOG_DIR": "boards/a"})
    board.folder = tmp_path / "boards" / "a"
    assert board.points() == [(1, 1.0)]
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_log_dir_left_empty_is_the_default(train):
    assert train([1.0], hook={"LOG_DIR": None}).points() == [(1, 1.0)]


def test_the_later_name_of_the_interval(train):
    board = train(ONE_TO_TEN, hook={"LOG_INTERVAL": None, "INTERVAL": 5})
    assert board.points() == [(5, 3.0), (10, 8.0)]
    failed = train(ONE_TO_TEN, interval=4, hook={"INTERVAL": 5}, fails=ConfigError)
    assert "one key under two names" in str(failed.solver)


def test_the_default_interval_and_priority():
    cfg = TensorboardLogHook.Config(name="TensorboardLogHook")
    assert (cfg.priority, cfg.log_interval, cfg.log_dir) == (100, 1000, None)


def test_a_point_is_in_the_file_at_once(train, board, monkeypatch):
    seen = []
    after_iter = TensorboardLogHook.after_iter

    def watched(self, solver):
        after_iter(self, solver)
        seen.append(board.steps())

    monkeypatch.setattr(TensorboardLogHook, "after_iter", watched)
    train([1.0] * 3)
    assert seen == [[1], [1, 2], [1, 2, 3]]


def test_a_run_that_writes_nothing_opens_nothing(train):
    assert not train([1.0] * 4, interval=2, end_at=1, fails=KeyError).folder.exists()


def test_an_epoch_without_metrics_opens_nothing(train):
    train([1.0], save_at=1, hook=None)
    board = train([1.0], kind="no scalar", eval_values=[1.0], load="saved", mode="eval")
    assert not board.folder.exists()


@pytest.mark.parametrize("ending", [{}, {"end_at": 3, "fails": KeyError}])
def test_the_file_is_closed_however_the_run_ends(train, monkeypatch, ending):
    opened = []
    open_file = FileSystem.open

    def watched(self, path, mode="rb"):
        file = open_file(self, path, mode)
        opened.append((path, file))
        return file

    monkeypatch.setattr(FileSystem, "open", watched)
    board = train([1.0] * 3, **ending)
    assert board.steps() == [1, 2, 3]
    ((_, file),) = [(path, file) for path, file in opened if "tfevents" in path]
    assert file.closed


def test_a_folder_that_cannot_be_written_is_said(train, tmp_path):
    (tmp_path / "taken").write_text("")
    failed = train([1.0], hook={"LOG_DIR": str(tmp_path / "taken")}, fails=RunError)
    assert f"cannot write event files in {tmp_path / 'taken'}" in str(failed.solver)


def test_another_process_than_the_first_writes_nothing(train, monkeypatch):
    monkeypatch.setattr(BaseSolver, "rank", 1)
    board = train([1.0] * 2, save_at=1)
    assert not board.folder.exists()
    assert board.solver.hooks_dict["train"][2].state_dict() == {}


def test_the_plugin_imports_neither_torch_nor_tensorboardx():
    code = (
        "import sys, scepter_tensorboard; print(sorted({'torch', 'tensorboardX', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_examples_of_the_readme(train, tmp_path, monkeypatch):
    text = README.read_text()
    section = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.S)[1])["SOLVER"]
    (listed,) = [hook for hook in section["TRAIN_HOOKS"] if hook["NAME"] == "TensorboardLogHook"]
    assert listed["LOG_INTERVAL"] == 50
    monkeypatch.chdir(tmp_path)
    train([0.5] * 60, hook=listed, WORK_DIR="runs/digits")
    found: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], found)
    assert found["losses"] == [(50, 0.5), (60, 0.5)]


def test_the_readme_lists_every_key_with_its_default():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", README.read_text(), re.M)
    fields = TensorboardLogHook.Config.model_fields
    assert {key for key, _ in rows} == {name.upper() for name in fields} - {"NAME"}
    shown = dict(rows)
    assert (shown["PRIORITY"], shown["LOG_INTERVAL"]) == ("100", "1000")


def test_the_hook_is_found_by_its_entry_point(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "SOLVER: {NAME: TrainValSolver, WORK_DIR: run, MAX_EPOCHS: 1, TRAIN_HOOKS: [{NAME: TensorboardLogHook}]}"
    )
    (section,) = load_config(config).solver.train_hooks
    assert isinstance(section, TensorboardLogHook.Config)
