"""The order of things, event for event, with every counter."""

from __future__ import annotations

import pytest

from scepter_core import ConfigError, RunError, run

EVAL = {"NAME": "Floats", "VALUES": [2, 4]}
TEST = {"NAME": "Floats", "VALUES": [5]}


def _short(rows):
    return [(row["mode"], row["event"], row["epoch"], row["iter"], row["total_iter"], row["steps"]) for row in rows]


def _epoch(mode, epoch, length, begun, steps):
    """The events of one epoch: `begun` iterations of the mode were done before it; steps of training likewise."""
    moves = 1 if mode == "train" else 0
    rows = [(mode, "before_epoch", epoch, 0, begun, steps), (mode, "before_all_iter", epoch, 0, begun, steps)]
    for k in range(length):
        rows.append((mode, "before_iter", epoch, k, begun + k, steps + moves * k))
        rows.append((mode, "after_iter", epoch, k, begun + k, steps + moves * (k + 1)))
    end = (epoch, length, begun + length, steps + moves * length)
    return [*rows, *((mode, event, *end) for event in ("after_all_iter", "on_metrics", "after_epoch"))]


def test_train_eval_and_test_of_two_epochs(configure, recorder, recorded):
    listed = [{"NAME": "BackwardHook"}, recorder]
    # A run event reaches a hook once for each list it stands in; here only the training's recorder hears on_metrics.
    run(
        configure(
            TRAIN_HOOKS=listed,
            EVAL_HOOKS=[recorder | {"LABEL": "eval"}],
            TEST_HOOKS=[recorder | {"LABEL": "test"}],
            EVAL_DATA=EVAL,
            TEST_DATA=TEST,
        )
    )
    rows = [row for row in recorded() if row["label"] == "rec" or row["event"] not in ("before_solve", "after_solve")]
    once = [row for row in rows if row["event"] != "on_metrics" or row["label"] == "rec"]
    assert _short(once) == [
        ("train", "before_solve", 0, 0, 0, 0),
        *_epoch("train", 1, 3, 0, 0),
        *_epoch("eval", 1, 2, 0, 3),
        *_epoch("train", 2, 3, 3, 3),
        *_epoch("eval", 2, 2, 2, 6),
        *_epoch("test", 2, 1, 0, 6),
        ("train", "after_solve", 2, 3, 6, 6),
    ]
    assert [row["training"] for row in once if row["mode"] == "train"].count(False) == 0
    assert {row["training"] for row in once if row["mode"] != "train"} == {False}
    assert {row["of"] for row in once if row["mode"] == "train"} == {3}
    assert {row["of"] for row in once if row["mode"] == "eval"} == {2}
    metrics = [row["metrics"] for row in once if row["event"] == "on_metrics" and row["mode"] == "eval"]
    assert [m["mean"] for m in metrics] == [3.0, 3.0]
    assert [m["loss"] for m in metrics] == [-9.0, -18.0]  # w is -3, then -6


def test_run_events_reach_every_hook_once(configure, recorder, recorded):
    run(configure(TRAIN_HOOKS=[recorder], EVAL_HOOKS=[recorder | {"LABEL": "eval"}], MAX_EPOCHS=1))
    solves = [(row["label"], row["event"]) for row in recorded() if row["event"].endswith("_solve")]
    assert solves == [
        ("rec", "before_solve"),
        ("eval", "before_solve"),
        ("rec", "after_solve"),
        ("eval", "after_solve"),
    ]


def test_f01_mode_after_eval(configure, recorder, recorded):
    data = {"NAME": "Rows", "BATCH_SIZE": 4}
    solver = run(
        configure(
            TRAIN_DATA=data,
            EVAL_DATA={"NAME": "Rows", "SIZE": 8, "BATCH_SIZE": 4},
            MODEL={"NAME": "NormDropNet"},
            OPTIMIZER={"NAME": "AdamW", "LEARNING_RATE": 0.01},
            TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "EvalNow"}, recorder],
            EVAL_HOOKS=[recorder],
        )
    )
    iterations = [row for row in recorded() if row["event"] in ("before_iter", "after_iter")]
    assert {row["training"] for row in iterations if row["mode"] == "train"} == {True}
    assert {row["training"] for row in iterations if row["mode"] == "eval"} == {False}
    assert sum(row["mode"] == "eval" for row in iterations) == 2 * 2 * 3  # 2 batches, 3 evals, before and after
    assert int(solver.model.net[1].num_batches_tracked) == 8


def test_f02_a_submodule_in_eval_mode_stays_so(configure):
    from scepter_core import SOLVERS, load_config

    config = configure(
        TRAIN_DATA={"NAME": "Rows", "BATCH_SIZE": 4},
        EVAL_DATA={"NAME": "Rows", "BATCH_SIZE": 4},
        MODEL={"NAME": "NormDropNet"},
        OPTIMIZER={"NAME": "SGD", "LEARNING_RATE": 0.01},
    )
    solver = SOLVERS.build(load_config(config).SOLVER)
    solver.set_up_pre()
    solver.set_up()
    solver.model.net[1].eval()
    solver.solve()
    assert int(solver.model.net[1].num_batches_tracked) == 0
    assert solver.model.training
    assert solver.model.net[2].training
    assert not solver.model.net[1].training


def test_max_steps_cuts_an_epoch_and_a_last_eval_follows(configure, recorder, recorded):
    run(configure(MAX_STEPS=4, MAX_EPOCHS=5, EVAL_DATA=EVAL, EVAL_INTERVAL=3, TRAIN_HOOKS=[recorder]))
    rows = [(row["mode"], row["event"]) for row in recorded() if row["event"] not in ("before_iter", "after_iter")]
    assert rows == [
        ("train", "before_solve"),
        *(("train", event) for event in ("before_epoch", "before_all_iter", "after_all_iter", "on_metrics", "after_epoch")),
        *(("train", event) for event in ("before_epoch", "before_all_iter", "after_all_iter", "on_metrics", "after_epoch")),
        ("eval", "on_metrics"),
        ("train", "after_solve"),
    ]
    last = [row["last"] for row in recorded() if row["event"] == "before_iter"]
    assert last == [False, False, True, True]


def test_intervals_count_steps_where_only_max_steps_limits(configure, recorder, recorded):
    run(configure(MAX_STEPS=7, MAX_EPOCHS=None, EVAL_DATA=EVAL, EVAL_INTERVAL=2, TRAIN_HOOKS=[recorder]))
    evals = [row["steps"] for row in recorded() if row["event"] == "on_metrics" and row["of_mode"] == "eval"]
    assert evals == [2, 4, 6, 7]


def test_eval_once_at_the_end_of_a_step_driven_run(configure, recorder, recorded):
    run(configure(MAX_STEPS=7, MAX_EPOCHS=None, EVAL_DATA=EVAL, TRAIN_HOOKS=[recorder]))
    evals = [row["steps"] for row in recorded() if row["event"] == "on_metrics" and row["of_mode"] == "eval"]
    assert evals == [7]


@pytest.mark.parametrize(("interval", "expected"), [(1, [3, 6, 9, 12, 15]), (2, [6, 12]), (0, []), (-1, [])])
def test_eval_interval(configure, recorder, recorded, interval, expected):
    run(configure(MAX_EPOCHS=5, EVAL_DATA=EVAL, EVAL_INTERVAL=interval, TRAIN_HOOKS=[recorder]))
    evals = [row["steps"] for row in recorded() if row["event"] == "on_metrics" and row["of_mode"] == "eval"]
    assert evals == expected


@pytest.mark.parametrize(("interval", "expected"), [(0, [15]), (2, [6, 12])])
def test_test_interval(configure, recorder, recorded, interval, expected):
    run(configure(MAX_EPOCHS=5, TEST_DATA=TEST, TEST_INTERVAL=interval, TRAIN_HOOKS=[recorder]))
    tests = [row["steps"] for row in recorded() if row["event"] == "on_metrics" and row["of_mode"] == "test"]
    assert tests == expected


def test_num_folds(configure, recorder, recorded):
    solver = run(configure(MAX_EPOCHS=5, NUM_FOLDS=2, EVAL_DATA=EVAL, EVAL_INTERVAL=3, TRAIN_HOOKS=[recorder]))
    assert (solver.epoch, solver.train_steps) == (5, 15)
    passes = [row["epoch"] for row in recorded() if row["event"] == "after_epoch"]
    assert passes == [2, 4, 5]
    iterations = [(row["epoch"], row["iter"]) for row in recorded() if row["event"] == "before_iter"]
    assert iterations == [(epoch, k) for epoch in range(1, 6) for k in range(3)]
    evals = [row["epoch"] for row in recorded() if row["event"] == "on_metrics" and row["of_mode"] == "eval"]
    assert evals == [4]


def test_eval_alone_makes_one_pass_or_max_epochs(configure, recorder, recorded):
    from scepter_core import SOLVERS, load_config

    config = configure(TRAIN_DATA=None, OPTIMIZER=None, TRAIN_HOOKS=[], EVAL_DATA=EVAL, EVAL_HOOKS=[recorder])
    for every_epoch in (False, True):
        solver = SOLVERS.build(load_config(config).SOLVER)
        solver.set_up_pre()
        solver.set_up()
        solver.solve(every_epoch=every_epoch)
    epochs = [row for row in recorded() if row["event"] == "before_epoch"]
    assert len(epochs) == 1 + 2


def test_solve_from_an_epoch_taken_as_done(configure, recorder, recorded):
    from scepter_core import SOLVERS, load_config

    solver = SOLVERS.build(load_config(configure(MAX_EPOCHS=3, TRAIN_HOOKS=[{"NAME": "BackwardHook"}, recorder])).SOLVER)
    solver.set_up_pre()
    solver.set_up()
    solver.solve(epoch=2)
    assert [row["epoch"] for row in recorded() if row["event"] == "before_iter"] == [3, 3, 3]
    assert (solver.train_steps, solver.total_updates, float(solver.model.w)) == (9, 9, -3.0)


def test_a_hook_that_raises_is_named_and_every_hook_cleans_up(configure, recorder, recorded):
    hooks = [{"NAME": "BackwardHook"}, {"NAME": "Raiser", "STEP": 2}, recorder | {"PRIORITY": 9}]
    with pytest.raises(ValueError, match="raised on purpose in after_iter") as caught:
        run(configure(TRAIN_HOOKS=hooks, EVAL_HOOKS=[recorder | {"LABEL": "eval"}]))
    assert caught.value.__notes__ == ["raised by Raiser (tasks.py) in after_iter, train epoch 1, iteration 2"]
    ends = [(row["label"], row["event"]) for row in recorded() if row["event"] in ("on_exception", "after_solve")]
    assert ends == [(label, event) for event in ("on_exception", "after_solve") for label in ("eval", "rec")]


def test_clean_up_reaches_all_though_a_hook_fails_in_it(configure, recorder, recorded):
    hooks = [
        {"NAME": "Raiser", "STEP": 2},
        {"NAME": "Raiser", "EVENT": "on_exception", "PRIORITY": -1},
        {"NAME": "Raiser", "EVENT": "after_solve", "PRIORITY": -1},
        recorder,
    ]
    with pytest.raises(ValueError, match="raised on purpose in after_iter") as caught:
        run(configure(TRAIN_HOOKS=hooks))
    events = [row["event"] for row in recorded()]
    assert events[-2:] == ["on_exception", "after_solve"]
    notes = "\n".join(caught.value.__notes__)
    assert "raised on purpose in on_exception" in notes
    assert "raised on purpose in after_solve" in notes


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"NAME": "Floats", "VALUES": []}, "the eval data gives no batch: 0 samples, batch size 1, DROP_LAST false"),
        (
            {"NAME": "Floats", "VALUES": [1, 2, 3], "BATCH_SIZE": 4, "DROP_LAST": True},
            "the eval data gives no batch: 3 samples, batch size 4, DROP_LAST true",
        ),
    ],
)
def test_e13_a_loader_without_batches_is_told_at_the_start(configure, data, expected):
    with pytest.raises(ConfigError, match=expected):
        run(configure(EVAL_DATA=data))


def test_a_batch_that_is_no_dict_is_explained(configure):
    with pytest.raises(RunError, match="train data gives batches of type"):
        run(configure(TRAIN_DATA={"NAME": "Draws"}, MODEL={"NAME": "GradProbe"}) | {}, ["SOLVER.TRAIN_DATA.COLLATE=builtins:list"])
