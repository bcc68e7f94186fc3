"""Lines and rows of whole runs."""

from __future__ import annotations

import json
import math
import re
import weakref

import pytest

from scepter_core import ConfigError, RunError
from scepter_log import LogRecord
from scepter_log.hook import LogHook

ONE_TO_TEN = list(range(1, 11))


def test_e06_windows_and_the_rest_of_the_epoch(train):
    logged = train(ONE_TO_TEN, interval=4)
    assert logged.means() == [(4, 2.5), (8, 6.5), (10, 9.5)]
    shown = [re.search(r"iter (\d+)/10 .* loss (\S+)\((\S+)\)", line) for line in logged.lines]
    assert [found.groups() for found in shown if found] == [
        ("4", "4.0000", "2.5000"),
        ("8", "8.0000", "6.5000"),
        ("10", "10.0000", "9.5000"),
    ]


def test_e06_an_epoch_shorter_than_the_interval(train):
    logged = train([1, 2, 3], interval=10, epochs=2)
    assert logged.means() == [(3, 2.0), (6, 2.0)]


def test_e06_no_empty_window(train):
    logged = train(ONE_TO_TEN, interval=5, epochs=2)
    assert logged.means() == [(5, 3.0), (10, 8.0), (15, 3.0), (20, 8.0)]


@pytest.mark.parametrize("interval", [0, -1])
def test_e07_an_interval_that_is_off(train, interval):
    logged = train(ONE_TO_TEN, interval=interval, eval_values=[5])
    assert logged.of("train", "iter") == []
    assert [(row["mode"], row["values"]["loss"]) for row in logged.rows] == [("train", 5.5), ("eval", 5.0)]
    assert logged.solver.total_updates == 10


def test_e08_plain_lines_in_a_file(train):
    logged = train([1.0] * 200, interval=50)
    assert "\r" not in logged.text
    assert "\x1b" not in logged.text
    assert len([line for line in logged.lines if "train epoch 1" in line]) == 5  # four windows and the epoch
    in_file = (logged.path.parent / "std_log.txt").read_text()
    for line in logged.lines:
        assert line.partition("train epoch")[2] in in_file


def test_e09_no_graph_is_kept(train, monkeypatch):
    alive, most = weakref.WeakSet(), 0
    after_iter = LogHook.after_iter

    def watched(self, solver):
        nonlocal most
        alive.add(solver.loss)
        after_iter(self, solver)
        most = max(most, len(alive))

    monkeypatch.setattr(LogHook, "after_iter", watched)
    train([1.0] * 200, interval=1000)
    assert most <= 2


def test_e10_means_weigh_by_samples(train):
    logged = train(
        [10, 10, 9], batch_size=2, epochs=1, eval_values=[10, 10, 9], EVAL_HOOKS=[{"NAME": "LogHook"}]
    )
    assert logged.means() == [(2, pytest.approx(29 / 3))]
    assert logged.means("eval") == [(2, pytest.approx(29 / 3))]
    assert logged.of("eval", "epoch")[0]["values"]["loss"] == pytest.approx(29 / 3)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a13_accumulation_does_not_change_what_is_shown(train, accumulate):
    logged = train([4.0] * 8, interval=1, ACCU_STEP=accumulate)
    assert logged.means() == [(step, 4.0) for step in range(1, 9)]
    assert [row["updates"] for row in logged.of("train", "iter")] == [
        step // accumulate for step in range(1, 9)
    ]


def test_a_row_is_as_documented(train):
    logged = train(ONE_TO_TEN, interval=5)
    row = logged.rows[0]
    assert list(row) == ["mode", "epoch", "step", "updates", "kind", "values", "timing"]
    assert {key: row[key] for key in ("mode", "epoch", "step", "updates", "kind")} == {
        "mode": "train",
        "epoch": 1,
        "step": 5,
        "updates": 5,
        "kind": "iter",
    }
    assert row["values"] == {"loss": 3.0, "pg0_lr": 0.001}
    assert list(row["timing"]) == ["data_time", "step_time", "throughput", "elapsed", "remaining"]
    assert all(value >= 0 for value in row["timing"].values())
    assert logged.rows[-1]["values"] == {"loss": 5.5}
    assert list(logged.rows[-1]["timing"]) == ["elapsed"]


def test_the_line_is_as_documented(train):
    logged = train([0.25] * 23, interval=10, epochs=10)
    pattern = (
        r"train epoch 1/10 iter 10/23 \(10/230\) \| loss 0\.2500\(0\.2500\) \| pg0_lr 1\.00e-03 \| "
        r"data \d+\.\d{3}s step \d+\.\d{3}s \S+ samples/s \| elapsed \d+:\d\d:\d\d remaining \d+:\d\d:\d\d$"
    )
    assert re.search(pattern, logged.lines[0])
    assert "train epoch 10/10 iter 23/23 (230/230)" in logged.lines[-2]
    assert re.search(r"train epoch 10/10 done \| step 230 \| loss 0\.2500 \| elapsed", logged.lines[-1])


def test_values_of_equal_runs_are_equal(train):
    first = [row["values"] for row in train(ONE_TO_TEN, interval=3, epochs=2).rows]
    again = train(ONE_TO_TEN, interval=3, epochs=2).rows
    assert [row["values"] for row in again] == first


def test_values_that_are_not_finite_stay_json(train):
    logged = train([1.0] * 3, interval=1, kind="wild")
    assert logged.means(name="wild") == [(1, "NaN"), (2, "Infinity"), (3, "-Infinity")]
    for line in logged.path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert [float(value) for _, value in logged.means(name="wild")][1:] == [math.inf, -math.inf]


def test_what_is_no_scalar_is_left_out(train):
    assert train([1.0] * 3, kind="odd").rows[0]["values"] == {"loss": 1.0, "count": 3.0, "pg0_lr": 0.001}


def test_a_tensor_that_the_model_changes_in_place_is_read_as_it_was(train):
    logged = train([1.0] * 4, interval=4, kind="buffer")
    assert logged.means(name="seen") == [(4, 2.5)]


def test_an_output_of_some_steps_is_averaged_over_those(train):
    logged = train([1.0, 2.0, 3.0, 4.0], interval=4, kind="sometimes")
    assert logged.means(name="extra") == [(4, 20.0)]
    assert logged.means() == [(4, 2.5)]


def test_long_windows_are_exact(train):
    logged = train(list(range(1, 301)), interval=1000)
    assert logged.means() == [(300, 150.5)]


def test_an_epoch_row_is_written_once(train):
    both = [{"NAME": "LogHook"}, {"NAME": "LogHook", "LOG_INTERVAL": 2}]
    logged = train(
        [1.0] * 4,
        interval=4,
        eval_values=[1.0],
        EVAL_HOOKS=both,
        TEST_DATA={"NAME": "LogTestData", "VALUES": [7]},
    )
    assert [row["mode"] for row in logged.rows if row["kind"] == "epoch"] == ["train", "eval", "test"]
    assert len([line for line in logged.lines if "done" in line]) == 3


def test_on_log_brings_what_is_written(train):
    logged = train(ONE_TO_TEN, interval=4, eval_values=[1.0])
    assert [record.kind for record in logged.records] == ["iter", "iter", "iter", "epoch", "epoch"]
    assert isinstance(logged.records[0], LogRecord)
    for record, row in zip(logged.records, logged.rows, strict=True):
        assert (record.mode, record.epoch, record.step, record.updates) == (
            row["mode"],
            row["epoch"],
            row["step"],
            row["updates"],
        )
        assert dict(record.values) == row["values"]


@pytest.mark.parametrize(
    "saved", [{"save_at": step} for step in (3, 5, 6, 7, 9)] + [{"save_epoch": 1}, {"save_epoch": 2}]
)
def test_a_resume_cuts_the_file_back_and_goes_on_in_the_window(train, tmp_path, saved):
    values = [0.1, 0.7, 0.3, 0.9, 0.2]
    whole = train(values, interval=2, epochs=3, eval_values=[1.0], WORK_DIR=str(tmp_path / "whole"))
    assert whole.rows == []  # another folder than the fixture's
    expected = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    train(values, interval=2, epochs=3, eval_values=[1.0], **saved, fail_at=12, fails=KeyError)
    resumed = train(values, interval=2, epochs=3, eval_values=[1.0], load=tmp_path / "saved.pth")

    def clockless(rows):
        return [{key: value for key, value in row.items() if key != "timing"} for row in rows]

    assert clockless(resumed.rows) == clockless(expected)


def test_a_finished_run_touches_nothing(train, tmp_path):
    logged = train([1.0] * 4, interval=2, save_epoch=1)
    with logged.path.open("ab") as file:
        file.write(b'{"mode": "eval"}\n')  # what came after the checkpoint
    before = logged.path.read_bytes(), logged.path.stat().st_mtime_ns
    ended = train([1.0] * 4, interval=2, load=tmp_path / "saved.pth")
    assert ended.records == []
    assert (logged.path.read_bytes(), logged.path.stat().st_mtime_ns) == before


def test_a_new_run_keeps_the_file_of_another_aside(train):
    first = train([1.0] * 4, interval=2)
    rows = first.path.read_bytes()
    again = train([1.0] * 4, interval=2)
    assert [row["step"] for row in again.rows] == [2, 4, 4]
    assert first.path.with_name("metrics.jsonl.1").read_bytes() == rows


def test_a_run_that_logs_nothing_opens_nothing(train):
    logged = train([1.0] * 4, interval=2, fail_at=1, fails=KeyError)
    assert not logged.path.exists()


def test_the_file_is_closed_after_an_error(train, monkeypatch):
    closed = []
    after_solve = LogHook.after_solve

    def watched(self, solver):
        after_solve(self, solver)
        closed.append(self._file._file is None)

    monkeypatch.setattr(LogHook, "after_solve", watched)
    logged = train([1.0] * 4, interval=1, fail_at=2, fails=KeyError)
    assert closed == [True]
    assert [row["step"] for row in logged.rows] == [1, 2]


def test_a_file_that_cannot_be_written_is_said(train, tmp_path):
    (tmp_path / "run" / "metrics.jsonl").mkdir(parents=True)
    train([1.0] * 2, interval=1, fails=RunError)


def test_steps_that_only_max_steps_limits(train):
    logged = train(ONE_TO_TEN, interval=4, epochs=-1, MAX_STEPS=13)
    assert [step for step, _ in logged.means()] == [4, 8, 10, 13]
    assert "train epoch 2 iter 3/10 (13/13)" in logged.lines[-2]


def test_the_later_name_of_the_interval(train):
    logged = train(ONE_TO_TEN, hook={"LOG_INTERVAL": None, "INTERVAL": 5})
    assert logged.means() == [(5, 3.0), (10, 8.0)]
    with pytest.raises(ConfigError, match="one key under two names"):
        train(ONE_TO_TEN, interval=4, hook={"INTERVAL": 5})


def test_a_window_ends_with_the_inner_epoch_of_a_fold(train):
    logged = train([1, 2, 3], interval=2, epochs=2, NUM_FOLDS=2)
    assert logged.means() == [(2, 1.5), (3, 3.0), (5, 1.5), (6, 3.0)]
    assert [row["epoch"] for row in logged.of("train", "iter")] == [1, 1, 2, 2]
    assert len(logged.of("train", "epoch")) == 1
