"""Which state is the best."""

from __future__ import annotations

import math

import pytest

from scepter_core import ConfigError, RunError


def best_of(job):
    """Epoch and value of the best file."""
    state = job.read("p-best")
    (hook,) = [
        entry["state"] for name, entry in state["hooks"].items() if name.startswith("train/CheckpointHook")
    ]
    return state["epoch"], hook["best"]


@pytest.mark.parametrize(("key", "epoch", "value"), [("-loss", 2, 1.0), ("+loss", 1, 3.0), ("loss", 1, 3.0)])
def test_c06_direction_of_the_metric(probe, key, epoch, value):
    job = probe(epochs=3, evals=[3.0, 1.0, 2.0], SAVE_BEST_BY=key)
    job.run()
    assert best_of(job) == (epoch, value)
    assert job.weight("p-best") == -3.0 * epoch


def test_c08_nan_is_never_the_best(probe):
    job = probe(epochs=4, evals=[0.1, math.nan, 0.3, math.nan], SAVE_BEST_BY="+acc")
    solver = job.run()
    assert best_of(job) == (3, 0.3)
    assert solver.epoch == 4
    warnings = job.log.of("WARNING")
    assert len(warnings) == 2
    assert all("acc" in line and "NaN" in line for line in warnings)
    assert ["epoch 2" in warnings[0], "epoch 4" in warnings[1]] == [True, True]


def test_c08_nan_first_does_not_block_a_number(probe):
    job = probe(epochs=2, evals=[math.nan, 0.3], SAVE_BEST_BY="-acc")
    job.run()
    assert best_of(job) == (2, 0.3)


@pytest.mark.parametrize(("key", "values"), [("+acc", [0.5, 0.5, 0.4]), ("-acc", [0.5, 0.5, 0.6])])
def test_c10_an_equal_value_replaces_nothing(probe, key, values):
    job = probe(epochs=3, evals=values, SAVE_BEST_BY=key)
    job.run()
    assert best_of(job)[0] == 1


@pytest.mark.parametrize(("key", "values"), [("+acc", [0.9, 0.5, 0.6]), ("-loss", [0.1, 0.5, 0.4])])
def test_c11_best_value_survives_a_resume(probe, key, values):
    job = probe(epochs=1, evals=values, SAVE_BEST_BY=key, SAVE_LAST=True)
    job.run()
    before = job.content()["checkpoints/p-best.pth"]
    for start, epochs in (("auto", 2), (job.path("p-last"), 3)):
        job.run(f"SOLVER.RESUME_FROM={start}", f"SOLVER.MAX_EPOCHS={epochs}")
        assert job.content()["checkpoints/p-best.pth"] == before
    assert best_of(job)[0] == 1


def test_c11_resume_before_the_eval_decides_the_same_epoch(probe):
    job = probe(epochs=1, evals=[0.9, 0.5, 0.6], SAVE_BEST_BY="+acc")
    job.run()
    job.run(f"SOLVER.RESUME_FROM={job.path('p-3')}", "SOLVER.MAX_EPOCHS=3")
    assert best_of(job)[0] == 1
    assert job.weight("p-best") == -3.0


def test_c11_a_better_one_after_the_resume_replaces_it(probe):
    job = probe(epochs=1, evals=[0.5, 0.4, 0.6], SAVE_BEST_BY="acc")
    job.run()
    job.run("SOLVER.RESUME_FROM=auto", "SOLVER.MAX_EPOCHS=3")
    assert best_of(job)[0] == 3


def test_c23_metric_that_never_appears_ends_the_run_at_the_first_eval(probe):
    job = probe(epochs=3, evals=[0.1, 0.2, 0.3], SAVE_BEST_BY="+accuracy")
    with pytest.raises(RunError) as caught:
        job.run()
    assert "accuracy" in str(caught.value)
    assert "acc, loss" in str(caught.value)
    assert "SAVE_BEST_BY" in str(caught.value)
    assert job.names == {"p-3"}, "one epoch was trained, and no more"


def test_without_eval_the_training_decides(probe):
    job = probe(epochs=3, SAVE_BEST_BY="-loss")  # the loss falls from epoch to epoch
    job.run()
    assert job.read("p-best")["epoch"] == 3


def test_with_eval_the_training_decides_nothing(probe):
    job = probe(epochs=2, evals=[0.5, 0.6], SAVE_BEST_BY="-loss")  # training's falls, eval's rises
    job.run()
    assert best_of(job) == (1, 0.5)


def test_epoch_without_its_eval_decides_nothing(probe):
    job = probe(epochs=4, evals=[9.0, 0.5, 9.0, 0.4], SAVE_BEST_BY="acc", solver={"EVAL_INTERVAL": 2})
    job.run()
    assert best_of(job) == (2, 0.5)


def test_best_is_decided_off_the_interval_too(probe):
    job = probe(epochs=3, evals=[0.1, 0.9, 0.2], SAVE_BEST_BY="acc", INTERVAL=0)
    job.run()
    assert job.names == {"p-best"}
    assert best_of(job) == (2, 0.9)


def test_best_in_mid_epoch_where_steps_are_counted(probe):
    values = [1.0] * 4
    job = probe(
        values,
        epochs=-1,
        evals=[0.5],
        SAVE_BEST_BY="-loss",
        INTERVAL=0,
        solver={"MAX_STEPS": 4, "EVAL_INTERVAL": 2},
    )
    job.run()
    assert job.read("p-best")["total_iter"]["train"] == 2


def test_save_best_off(probe):
    job = probe(evals=[0.1, 0.2], SAVE_BEST_BY="acc", SAVE_BEST=False)
    job.run()
    assert job.names == {"p-3", "p-6"}


def test_save_best_asked_for_without_a_metric_is_off_with_a_notice(probe):
    job = probe(SAVE_BEST=True)
    job.run()
    assert job.names == {"p-3", "p-6"}
    assert "SAVE_BEST_BY" in job.log.text


def test_save_best_not_asked_for_is_off_in_silence(probe):
    job = probe()
    job.run()
    assert "SAVE_BEST" not in job.log.text


@pytest.mark.parametrize("sign", ["+", "-"])
def test_save_best_by_a_sign_alone(probe, sign):
    with pytest.raises(ConfigError, match=r"TRAIN_HOOKS\[2\]\.SAVE_BEST_BY"):
        probe(SAVE_BEST_BY=sign).run()
