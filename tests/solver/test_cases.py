"""Cases of configuration, plugins and order that users of other training loops reported; each is named after its id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scepter_core import ConfigError, load_config, run

TASKS = Path(__file__).parents[1] / "tasks.py"
YAML = """\
PLUGINS: [{tasks}]
ENV: {{DEVICE: cpu}}
SOLVER:
  NAME: TrainValSolver
  WORK_DIR: {work}
  MAX_EPOCHS: 1
  TRAIN_DATA: {{NAME: Floats, VALUES: [1]}}
  MODEL: {{NAME: GradProbe}}
  OPTIMIZER: {{NAME: SGD, LEARNING_RATE: {rate}}}
  TRAIN_HOOKS:
    - {{NAME: BackwardHook}}
    - {{NAME: CheckpointHook, SAVE_NAME_PREFIX: {prefix}}}
"""


@pytest.fixture
def written(tmp_path):
    """Writes the YAML above, with text appended, and returns its path."""

    def write(extra: str = "", rate: str = "1", prefix: str = "m") -> Path:
        path = tmp_path / "cfg.yaml"
        text = YAML.format(tasks=TASKS, work=tmp_path / "run", rate=rate, prefix=prefix)
        path.write_text(text + extra, encoding="utf-8")
        return path

    return write


def _report(path, *overrides):
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return [str(problem).replace(str(path.parent) + os.sep, "") for problem in caught.value.problems]


def test_g01_an_exponent_without_a_point_is_a_number(written, tmp_path):
    solver = run(written(rate="1e-4"))
    assert float(solver.model.w.detach()) == pytest.approx(-0.0001, rel=1e-6)
    saved = load_config(tmp_path / "run" / "config.yaml")
    assert saved.SOLVER.OPTIMIZER.LEARNING_RATE == 0.0001
    assert "LEARNING_RATE: 0.0001\n" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize("text", ["on", "no", "010", "1:30", "2024-01-01", "1e5", "0x10", "null_", "1_000"])
def test_g02_text_is_read_as_it_is_written(written, tmp_path, text):
    if ":" in text:  # not a file name everywhere; read as text all the same
        assert _report(written(prefix=text))[0].splitlines()[:2] == [
            'cfg.yaml:12:48: SOLVER.TRAIN_HOOKS[1].SAVE_NAME_PREFIX: must be a plain file name: not empty, no leading '
            'dot, none of / \\ : * ? " < > |',
            "    found:    1:30",
        ]
        return
    run(written(prefix=text))
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [f"{text}-1.pth"]


def test_g02_no_is_a_value_only_where_a_boolean_is_wanted(written):
    (problem,) = _report(written("    - {NAME: LrHook, WARMUP_FUNC: no}\n"))
    assert problem.splitlines()[:2] == [
        "cfg.yaml:13:35: SOLVER.TRAIN_HOOKS[2].WARMUP_FUNC: must be 'linear'",
        "    found:    no",
    ]
    config = load_config(written("    - {NAME: LogHook, SHOW_GPU_MEM: on}\n"))
    assert config.SOLVER.TRAIN_HOOKS[2].SHOW_GPU_MEM is True


def test_g02_a_key_called_on_is_the_key_on(written):
    (problem,) = _report(written("  on: 1\n"))
    assert problem.splitlines()[0] == "cfg.yaml:13:3: SOLVER.on: unknown key"


def test_g03_the_same_key_twice(written):
    text = "  MAX_EPOCHS: 3\n  METRICS:\n    - {NAME: AccuracyMetric, KEYS: [a, b], TOPK: 1, TOPK: 2}\n"
    problems = _report(written(text))
    assert [problem.splitlines()[0] for problem in problems] == [
        "cfg.yaml:13:3: the key MAX_EPOCHS stands here twice (lines 6 and 13)",
        "cfg.yaml:15:53: the key TOPK stands here twice (lines 15 and 15)",
    ]


def test_g03_merge_keys_still_work(written):
    text = (
        "META:\n  base: &base {NAME: Floats, VALUES: [1, 2], BATCH_SIZE: 2}\n"
        "  more: {<<: *base, BATCH_SIZE: 1}\n"
    )
    assert load_config(written(text)).META["more"] == {"NAME": "Floats", "VALUES": [1, 2], "BATCH_SIZE": 1}


def test_g04_unknown_keys_all_at_once_with_the_nearest(written, tmp_path):
    problems = _report(written("  MAX_EPOCH: 3\n  EVAL_HOOKS: [{NAME: CheckpointHook, INTERAVL: 2, SAVE_NAME_PREFIX: e}]\n"))
    assert [problem.splitlines()[0] for problem in problems] == [
        "cfg.yaml:13:3: SOLVER.MAX_EPOCH: unknown key",
        "cfg.yaml:14:39: SOLVER.EVAL_HOOKS[0].INTERAVL: unknown key",
    ]
    assert [problem.splitlines()[-1].strip() for problem in problems] == [
        "hint:     did you mean MAX_EPOCHS?",
        "hint:     did you mean INTERVAL?",
    ]
    assert not (tmp_path / "run").exists()


def test_g10_a_broken_plugin(written, tmp_path):
    site = tmp_path / "site"
    info = site / "acme_broken-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_broken.py").write_text("import a_library_that_is_not_there\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[scepter.hooks]\nAcmeHook = acme_broken:AcmeHook\n")
    (info / "RECORD").write_text("")

    def scepter(*arguments):
        environment = os.environ | {"PYTHONPATH": str(site)}
        return subprocess.run(
            [sys.executable, "-m", "scepter_core", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert scepter("run", str(written())).returncode == 0  # (a) not used, not imported
    used = scepter("run", str(written("    - {NAME: AcmeHook}\n")), "--overwrite")  # (b)
    assert used.returncode == 2
    assert "acme-broken 1.0" in used.stderr
    assert "ModuleNotFoundError: No module named 'a_library_that_is_not_there'" in used.stderr
    assert "Traceback" not in used.stderr
    assert scepter("--help").returncode == 0  # (c)
    listed = scepter("plugins", "AcmeHook", "--json")
    assert "a_library_that_is_not_there" in listed.stdout
    assert "AcmeHook" in scepter("plugins").stdout


def test_g14_smaller_priorities_first_at_every_event(configure, recorder, recorded, tmp_path):
    def user(label, priority):
        return recorder | {"LABEL": label, "PRIORITY": priority}

    hooks = [
        user("sampler", 400),
        user("checkpoint", 300),
        user("lr", 200),
        user("A", 150),
        user("B", 150),
        user("log", 100),
        user("first", 50),
        {"NAME": "BackwardHook"},
    ]
    data = {"NAME": "Floats", "VALUES": [1, 1]}
    eval_hooks = [recorder | {"FILE": str(tmp_path / "eval.jsonl")}]
    run(configure(TRAIN_DATA=data, TRAIN_HOOKS=hooks, EVAL_DATA=data, EVAL_HOOKS=eval_hooks, MAX_EPOCHS=1))
    order = ["first", "log", "A", "B", "lr", "checkpoint", "sampler"]
    train = [
        "before_solve",
        "before_epoch",
        "before_all_iter",
        *("before_iter", "after_iter") * 2,
        "after_all_iter",
        "on_metrics",
        "after_epoch",
    ]
    rows = [(row["event"], row["label"]) for row in recorded()]
    expected = [(event, label) for event in (*train, "on_metrics", "after_solve") for label in order]
    assert rows == expected
    events = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    of_eval = [row["event"] for row in events if row["mode"] == "eval" and row["event"] != "on_metrics"]
    assert of_eval == [
        "before_epoch",
        "before_all_iter",
        *("before_iter", "after_iter") * 2,
        "after_all_iter",
        "after_epoch",
    ]
