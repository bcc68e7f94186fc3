"""Under the Trainer: the events, counters, random numbers and weights of the core's own loop."""

from __future__ import annotations

import pytest

EVAL = {"EVAL_DATA": {"NAME": "LightningTestRows", "SIZE": 6, "BATCH_SIZE": 4}}
TEST = {"TEST_DATA": {"NAME": "LightningTestRows", "SIZE": 4, "BATCH_SIZE": 4}}
STREAM = {"TRAIN_DATA": {"NAME": "LightningTestStream", "BATCH_SIZE": 4}}
WORKERS = {"TRAIN_DATA": {"NAME": "LightningTestRows", "BATCH_SIZE": 4, "NUM_WORKERS": 2, "PERSISTENT_WORKERS": True}}

# keys of SOLVER → training steps, updates and evaluated batches of the whole run
RUNS = {
    "train, eval and test": ({**EVAL, **TEST}, 6, 6, 5),
    "accumulation with a short last window": ({"ACCU_STEP": 2, **EVAL}, 6, 4, 4),
    "MAX_STEPS cuts an epoch": ({"MAX_STEPS": 5, **EVAL, **TEST}, 5, 5, 5),
    "MAX_STEPS alone, an eval in mid-epoch": ({"MAX_EPOCHS": None, "MAX_STEPS": 5, "EVAL_INTERVAL": 2, **EVAL}, 5, 5, 6),
    "evals and tests in mid-window": (
        {"MAX_EPOCHS": None, "MAX_STEPS": 7, "ACCU_STEP": 3, "EVAL_INTERVAL": 2, "TEST_INTERVAL": 1, **EVAL, **TEST}, 7, 3, 15,
    ),
    "evals every other epoch": ({"MAX_EPOCHS": 3, "EVAL_INTERVAL": 2, "TEST_INTERVAL": 1, **EVAL, **TEST}, 9, 9, 5),
    "two epochs in a pass": ({"MAX_EPOCHS": 5, "NUM_FOLDS": 2, **EVAL}, 15, 15, 6),
    "two epochs in a pass, cut": ({"MAX_STEPS": 5, "NUM_FOLDS": 2, "ACCU_STEP": 2, **EVAL}, 5, 3, 2),
    "a stream": ({**STREAM, **EVAL}, 6, 6, 4),
    "a stream, folded and accumulated": ({**STREAM, "NUM_FOLDS": 2, "ACCU_STEP": 2}, 6, 4, 0),
    "worker processes": (WORKERS, 6, 6, 0),
    "autocast": ({"TRAIN_PRECISION": "bf16"}, 6, 6, 0),
    "one step": ({"MAX_STEPS": 1}, 1, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "steps", "updates", "evaluated"), RUNS.values(), ids=RUNS)
def test_a_run_is_the_same(train, keys, steps, updates, evaluated):
    native, lightning = train(False, **keys), train(True, **keys)
    iterations = [row for row in native.rows if row[0] == "after_iter"]
    assert [row[1] for row in iterations].count("train") == steps
    assert len(iterations) - steps == evaluated
    assert native.rows[-1][5:7] == (steps, updates)
    assert lightning.rows == native.rows
    assert lightning.weights == native.weights


def test_the_events_of_a_short_run_by_name(train):
    rows = train(True, MAX_EPOCHS=1, TRAIN_DATA={"NAME": "LightningTestRows", "SIZE": 4, "BATCH_SIZE": 2}, **EVAL).rows
    train_steps = [("before_iter", "train"), ("after_iter", "train")] * 2
    eval_steps = [("before_iter", "eval"), ("after_iter", "eval")] * 2
    assert [row[:2] for row in rows] == [
        *[("before_solve", "train")] * 2,  # the hooks of training and of eval
        *[("before_epoch", "train"), ("before_all_iter", "train"), *train_steps, ("after_all_iter", "train")],
        *[*[("on_metrics", "train")] * 2, ("after_epoch", "train")],
        *[("before_epoch", "eval"), ("before_all_iter", "eval"), *eval_steps, ("after_all_iter", "eval")],
        *[*[("on_metrics", "eval")] * 2, ("after_epoch", "eval")],
        *[("after_solve", "train")] * 2,
    ]


def test_the_training_is_the_trainers(train, acts):
    seen = []
    acts["after_iter", 4] = lambda solver: seen.append(
        (solver.engine.trainer.training, solver.engine.trainer.current_epoch, solver.engine.trainer.optimizers)
    )
    solver = train(True).solver
    assert seen == [(True, 1, [solver.optimizer])]
    assert solver.engine.trainer.global_step == 0  # it counts steps of its own wrapper only


def test_an_eval_that_a_hook_begins(train, acts):
    acts["after_iter", 2] = lambda solver: solver.solve_eval()
    native, lightning = train(False, **EVAL), train(True, **EVAL)
    assert sum(row[0] == "before_epoch" and row[1] == "eval" for row in native.rows) == 3
    assert (lightning.rows, lightning.weights) == (native.rows, native.weights)


@pytest.mark.parametrize("mode", ["eval", "test"])
def test_without_training(train, mode):
    native, lightning = (train(use_pl, mode=mode, **EVAL, **TEST) for use_pl in (False, True))
    assert {row[1] for row in native.rows if row[0] == "after_iter"} == {mode}
    assert lightning.rows == native.rows


def test_solve_again_with_more_epochs(train):
    ends = []
    for use_pl in (False, True):
        solver = train(use_pl, ACCU_STEP=2).solver
        solver.max_epochs = 4
        solver.solve()
        ends.append((solver.rows, solver.train_steps, solver.model.net[0].weight.tolist()))
    assert ends[0][1] == 12
    assert ends[0] == ends[1]


@pytest.mark.parametrize("step", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("keys", [{"ACCU_STEP": 2, **EVAL}, {"NUM_FOLDS": 2, "ACCU_STEP": 2, **EVAL}], ids=["1", "2"])
def test_each_resumes_the_other_in_mid_epoch(train, tmp_path, keys, step):
    whole = {use_pl: train(use_pl, save=True, **keys) for use_pl in (False, True)}
    for use_pl, other in ((True, "native"), (False, "lightning")):
        load = tmp_path / other / f"{step}.pth"
        resumed = train(use_pl, load=load, **keys)
        same = train(not use_pl, load=load, **keys)
        assert resumed.rows == same.rows
        assert resumed.weights == whole[False].weights
        assert resumed.solver.train_steps == 6


def test_a_resume_behind_an_epochs_last_step(train, tmp_path):
    train(False, save=True)
    for use_pl in (False, True):
        done = train(use_pl, MAX_EPOCHS=1, load=tmp_path / "native" / "3.pth")
        events = ["before_epoch", "before_all_iter", "after_all_iter", "on_metrics", "after_epoch"]
        assert [row[0] for row in done.rows] == ["before_solve", *events, "after_solve"]
