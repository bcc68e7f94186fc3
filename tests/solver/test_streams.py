"""Streams with a state: wherever a run is killed, it goes on with the very next batch and reads nothing twice."""

from __future__ import annotations

import json

import pytest
import torch

from scepter_core import HOOKS, ConfigError, Hook, RunError, read_checkpoint, run

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture
def streaming(configure, tmp_path):
    """streaming(folder, data keys…) → a configuration that saves after every step, and logs every row that is read."""

    def make(folder, *, name="BufferedStream", accumulate=2, solver=None, **data):
        return configure(
            WORK_DIR=str(tmp_path / folder),
            TRAIN_DATA={"NAME": name, "LOG": str(tmp_path / f"{folder}.log"), "BATCH_SIZE": 3, **data},
            MODEL={"NAME": "PlainDropNet"},
            OPTIMIZER={"NAME": "AdamW", "LEARNING_RATE": 0.01},
            TRAIN_HOOKS=[
                {"NAME": "BackwardHook", "ACCUMULATE_STEP": accumulate},
                {"NAME": "LogHook", "LOG_INTERVAL": 1},
                {"NAME": "CheckpointHook", "INTERVAL_STEPS": 1, "INTERVAL": 0, "SAVE_LAST": True, "ASYNC": False},
            ],
            **(solver or {}),
        )

    return make


@pytest.fixture
def end(tmp_path):
    """end(folder) → what a run ended in: its weights, and the values of its last logged rows by step."""

    def read(folder):
        state = read_checkpoint(str(tmp_path / folder / "checkpoints/ldm_step-last.pth"))
        rows = [json.loads(line) for line in (tmp_path / folder / "metrics.jsonl").read_text().splitlines()]
        return state["model"], {(row["step"], row["kind"]): row["values"] for row in rows}, state["total_updates"]

    return read


def rows_read(tmp_path, folder):
    log = tmp_path / f"{folder}.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def assert_same_end(whole, other, after):
    assert whole[2] == other[2]
    assert all(torch.equal(whole[0][name], other[0][name]) for name in whole[0])
    later = {place: values for place, values in whole[1].items() if place[0] > after}
    assert {place: values for place, values in other[1].items() if place[0] > after} == later


# 11 rows in batches of 3: one reader gives 3 3 3 2; two give 3 3 and 3 2 in turn; three give 3 1, 3 1 and 3.
@pytest.mark.parametrize(
    ("data", "steps"),
    [
        ({"NUM_WORKERS": 0}, 4),
        ({"NUM_WORKERS": 1}, 4),
        ({"NUM_WORKERS": 2}, 4),
        ({"NUM_WORKERS": 3, "SIZE": 13}, 6),  # 5, 4 and 4 rows: 3 2, 3 1 and 3 1
        ({"NUM_WORKERS": 2, "SIZE": 4, "BATCH_SIZE": 1}, 4),
        ({"NUM_WORKERS": 2, "SIZE": 7, "DROP_LAST": True}, 2),  # 4 and 3 rows: a short batch is left out
        ({"NUM_WORKERS": 2, "PERSISTENT_WORKERS": True, "PREFETCH_FACTOR": 1}, 4),
        ({"NUM_WORKERS": 0, "SIZE": 12}, 4),
    ],
)
def test_a_kill_after_any_step_loses_and_repeats_nothing(streaming, end, tmp_path, data, steps):
    run(streaming("whole", **data))
    expected = end("whole")
    size, readers = data.get("SIZE", 11), max(data["NUM_WORKERS"], 1)
    for step in range(1, 2 * steps + 1):
        saved = tmp_path / f"whole/checkpoints/ldm_step-{step}.pth"
        workers = read_checkpoint(str(saved))["data"]["streams"][0]["workers"]
        had = size if step > steps else 0
        for number, worker in enumerate(workers):
            if worker is not None:  # an ended one has forgotten what it had read
                had += len(range(number, size, readers)) if worker["ended"] else worker["dataset"]["read"]
        run(streaming(f"from-{step}", **data), resume=str(saved))
        assert_same_end(expected, end(f"from-{step}"), step)
        assert rows_read(tmp_path, f"from-{step}") == 2 * size - had, "every row once, and none of the past"


def test_no_and_one_worker_are_one_reader(streaming, end, tmp_path):
    run(streaming("whole"))
    run(streaming("other", NUM_WORKERS=1), resume=str(tmp_path / "whole/checkpoints/ldm_step-2.pth"))
    assert_same_end(end("whole"), end("other"), 2)


def test_a_state_that_is_taken_before_a_step_does_not_count_its_batch(streaming, end, tmp_path):
    @HOOKS.register_class()
    class StreamTestSaver(Hook):
        def before_iter(self, solver):
            torch.save(solver.save_checkpoint(), tmp_path / f"before-{solver.train_steps + 1}.pth")

    config = streaming("whole", accumulate=1)
    config["SOLVER"]["TRAIN_HOOKS"].append({"NAME": "StreamTestSaver"})
    run(config)
    run(streaming("other", accumulate=1), resume=str(tmp_path / "before-3.pth"))
    assert_same_end(end("whole"), end("other"), 2)
    assert rows_read(tmp_path, "other") == 2 * 11 - 8  # six rows were trained on, and two stood in the buffer


def test_an_epoch_that_max_steps_cut_goes_on(streaming, end):
    run(streaming("whole", accumulate=1, solver={"MAX_EPOCHS": 3}))
    for steps in (3, 6, 9, -1):
        run(streaming("cut", accumulate=1, solver={"MAX_EPOCHS": 3, "MAX_STEPS": steps}), resume="auto")
    whole, cut = end("whole"), end("cut")
    assert whole[2] == cut[2] == 12
    assert all(torch.equal(whole[0][name], cut[0][name]) for name in whole[0])


def test_a_save_before_a_resumed_run_trains_again_keeps_the_state(streaming, tmp_path):
    limited = {"MAX_EPOCHS": 3, "MAX_STEPS": 3}
    run(streaming("whole", solver=limited))
    run(streaming("resumed", solver=limited), resume=str(tmp_path / "whole/checkpoints/ldm_step-3.pth"))
    whole, resumed = (read_checkpoint(str(tmp_path / name / "checkpoints/ldm_step-last.pth")) for name in ("whole", "resumed"))
    assert whole["data"]["streams"][0]["workers"][0]["dataset"]["read"] > 0
    assert str(resumed["data"]["streams"]) == str(whole["data"]["streams"])


@pytest.mark.parametrize("persistent", [False, True])
def test_every_epoch_begins_as_the_stream_was_built(streaming, tmp_path, persistent):
    """An epoch that MAX_STEPS of another run cut leaves its data set in the middle; the next pass must not go on there."""
    from scepter_core import SOLVERS, load_config

    workers = {"NUM_WORKERS": 1, "PERSISTENT_WORKERS": True} if persistent else {}
    solver = SOLVERS.build(load_config(streaming("a", **workers)).SOLVER)
    solver.set_up_pre()
    solver.construct_data()
    data = solver.datas["train"]
    whole = [batch["y"].tolist() for batch, _ in data.batches(2)]
    cut = data.batches(1)
    next(cut)
    cut.close()
    assert [batch["y"].tolist() for batch, _ in data.batches(2)] == whole
    data.close()


@pytest.mark.parametrize(
    ("then", "now", "reason"),
    [
        ({"NUM_WORKERS": 2}, {"NUM_WORKERS": 3}, "states of 2 readers, and there are 3 now"),
        ({"NUM_WORKERS": 2}, {"NUM_WORKERS": 0}, "states of 2 readers, and there are 1 now"),
        ({}, {"name": "ForgetfulStream"}, "no `state_dict`"),
        ({"name": "ForgetfulStream"}, {}, "has no state of it"),
        ({"name": "ForgetfulStream"}, {"name": "ForgetfulStream"}, "no `state_dict`"),
    ],
)
def test_where_no_state_fits_the_stream_is_read_again_and_that_is_said(
    streaming, tmp_path, capsys, then, now, reason
):
    run(streaming("whole", **then))
    capsys.readouterr()
    solver = run(streaming("other", **now), resume=str(tmp_path / "whole/checkpoints/ldm_step-2.pth"))
    said = [line for line in capsys.readouterr().out.splitlines() if "read again from the front, up to batch 2" in line]
    assert len(said) == 1
    assert reason in said[0]
    assert rows_read(tmp_path, "other") == 2 * 11
    assert solver.counters.epoch == 2


def test_a_stream_without_a_state_is_the_same_when_it_is_read_again(streaming, end, tmp_path):
    run(streaming("whole", name="ForgetfulStream", NUM_WORKERS=2))
    for step in (1, 3, 6):
        source = tmp_path / f"whole/checkpoints/ldm_step-{step}.pth"
        run(streaming(f"from-{step}", name="ForgetfulStream", NUM_WORKERS=2), resume=str(source))
        assert_same_end(end("whole"), end(f"from-{step}"), step)


def test_a_state_that_no_checkpoint_takes_is_named(streaming):
    with pytest.raises(RunError, match=r"data\.streams\[0\]\.workers\[0\]\.dataset\.more is a builtins\.object"):
        run(streaming("whole", KEEP="object"))


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("data", [{"VALUES": []}, {"VALUES": [1], "BATCH_SIZE": 2, "DROP_LAST": True}])
def test_a_stream_without_a_batch_ends_the_run(configure, mode, data):
    empty = {f"{mode.upper()}_DATA": {"NAME": "Stream", **data}}
    with pytest.raises(RunError, match=f"the {mode} data gave no batch"):
        run(configure(MAX_EPOCHS=-1, MAX_STEPS=2, **empty))  # train: it went on for ever


def test_an_order_that_a_stream_cannot_have_is_refused(streaming):
    with pytest.raises(ConfigError) as caught:
        run(streaming("run", SHUFFLE=True, SAMPLER={"NAME": "RandomSampler"}))
    problems = caught.value.problems
    assert [problem.path for problem in problems] == ["SOLVER.TRAIN_DATA.SHUFFLE", "SOLVER.TRAIN_DATA.SAMPLER"]
    assert [problem.found for problem in problems] == ["true", "RandomSampler"]
    assert all("BufferedStream can only be read from front to back" in problem.message for problem in problems)
