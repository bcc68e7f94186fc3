"""`explain`: the timeline and the order of the hooks."""

from __future__ import annotations

import json

from scepter_core import __version__

HOOKS = (
    "SOLVER.TRAIN_HOOKS=[{NAME: Around}, {NAME: Early}, {NAME: Descent}]",
    "SOLVER.EVAL_HOOKS=[{NAME: Early, PRIORITY: -1}]",
    "SOLVER.EVAL_INTERVAL=2",
)

EXPECTED = """\
TrainValSolver (scepter-core {version}), work_dir {folder}/run

 EVENT            HOOK     PRIORITY     OF     FROM

at the start
 before_solve     Early    -1 tryfirst  eval   task.py
                  Early    50 tryfirst  train  task.py
                  Around   90 trylast   train  task.py

train, 2 epochs
 before_epoch     -
 before_all_iter  -
 before_iter      -
 after_iter       Around   90 wrapper          task.py
                  Descent  0                   task.py
                  Early    50                  task.py
 after_all_iter   -
 on_metrics       -
 after_epoch      -

train, emitted by its hooks
 after_descent, brought by Descent (task.py)
                  Early    50                  task.py

eval, after every 2 epochs
 before_epoch     -
 before_all_iter  -
 before_iter      -
 after_iter       Early    -1                  task.py
 after_all_iter   -
 on_metrics       -
 after_epoch      -

eval, emitted by its hooks
 after_descent, brought by Descent (task.py)
                  Early    -1                  task.py

any time, emitted by hooks
 on_rest, brought by Descent (task.py)
                  Around   90           train  task.py

at the end (on_exception only after an error or a signal)
 on_exception     -
 after_solve      -
"""


def test_the_timeline(project):
    done = project.scepter("explain", "cfg.yaml", *HOOKS)
    assert (done.status, done.err) == (0, "")
    assert done.out == EXPECTED.format(version=__version__, folder=project.folder)
    assert not (project.folder / "run").exists()


def test_json(project):
    project.write("loud.py", "print('loud')\n")
    done = project.scepter("explain", "cfg.yaml", *HOOKS, "--json", "-p", "loud.py")
    assert (done.status, done.err) == (0, "loud\n")
    found = json.loads(done.out)
    assert found["config"] == "cfg.yaml"
    assert found["solver"] == {"name": "TrainValSolver", "distribution": "scepter-core", "version": __version__}
    assert found["modes"] == ["train", "eval"]
    events = [(moment["event"], moment["mode"]) for moment in found["timeline"]]
    assert events[0] == ("before_solve", None)
    assert events[-2:] == [("on_exception", None), ("after_solve", None)]
    assert events.index(("after_epoch", "train")) < events.index(("before_epoch", "eval"))
    after_iter = found["timeline"][events.index(("after_iter", "train"))]
    assert [(hook["name"], hook["priority"], hook["kind"]) for hook in after_iter["hooks"]] == [
        ("Around", 90, "wrapper"),
        ("Descent", 0, "plain"),
        ("Early", 50, "plain"),
    ]
    assert after_iter["brought_by"] is None
    rest = found["timeline"][events.index(("on_rest", None))]
    assert rest["scope"] == "run"
    assert rest["brought_by"] == {"name": "Descent", "distribution": "task.py", "version": None}


def test_plugins_are_named_with_their_version(project):
    done = project.scepter("explain", "cfg.yaml", "SOLVER.TRAIN_HOOKS=[{NAME: LogHook}]", "SOLVER.EVAL_DATA=null")
    assert done.status == 0
    calls = [line.split() for line in done.out.splitlines()]
    assert ["before_iter", "LogHook", "100", "scepter-log", __version__] in calls
    assert ["before_solve", "LogHook", "100", "train", "scepter-log", __version__] in calls


def test_the_lengths_are_said(project):
    done = project.scepter("explain", "cfg.yaml", "SOLVER.MAX_STEPS=1", "SOLVER.TEST_DATA={NAME: Dots}")
    assert "\ntrain, 2 epochs or 1 step, whichever is first\n" in done.out
    assert "\neval, after every epoch\n" in done.out
    assert "\ntest, once, after the training\n" in done.out


def test_a_wrong_configuration(project):
    done = project.scepter("explain", "cfg.yaml", "SOLVER.EVAL_HOOKS=[{NAME: Misspelt}]", "--json")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        'override "SOLVER.EVAL_HOOKS=[{NAME: Misspelt}]": '
        "Misspelt (task.py) in EVAL_HOOKS: before_itr: no event is named before_itr\n"
        "    hint:     did you mean before_iter?\n"
    )
