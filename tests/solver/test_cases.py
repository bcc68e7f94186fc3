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


def test_g06_null_none_and_values_from_the_command_line(written, tmp_path):
    path = written("  RESUME_FROM: None\n  EVAL_INTERVAL: 3\n")
    assert load_config(path).SOLVER.RESUME_FROM is None
    config = load_config(
        path,
        [
            "SOLVER.RESUME_FROM=null",
            "SOLVER.MAX_EPOCHS=3",
            "SOLVER.OPTIMIZER.LEARNING_RATE=1e-4",
            "SOLVER.TRAIN_HOOKS[1].SAVE_LAST=false",
            "SOLVER.TRAIN_HOOKS[CheckpointHook].SAVE_BEST=0",
            "SOLVER.METRICS=[{NAME: AccuracyMetric, KEYS: [a, b]}]",
            "SOLVER.EVAL_INTERVAL=0",
        ],
    )
    solver = config.SOLVER
    saving = solver.TRAIN_HOOKS[1]
    assert (solver.RESUME_FROM, solver.MAX_EPOCHS, solver.EVAL_INTERVAL) == (None, 3, 0)
    assert solver.OPTIMIZER.LEARNING_RATE == 0.0001
    assert (saving.SAVE_LAST, saving.SAVE_BEST) == (False, False)
    assert solver.METRICS[0].KEYS == ["a", "b"]
    (problem,) = _report(path, "SOLVER.MAX_EPOCH=3")
    assert problem.splitlines()[0] == 'override "SOLVER.MAX_EPOCH=3": SOLVER.MAX_EPOCH: unknown key'


def _scepter(*arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, "-m", "scepter_core", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_g07_code_is_found_from_the_file_and_data_from_the_folder(tmp_path):
    config = tmp_path / "a" / "b" / "cfg.yaml"
    config.parent.mkdir(parents=True)
    (config.parent / "my_task.py").write_text(TASKS.read_text(encoding="utf-8"), encoding="utf-8")
    text = YAML.format(tasks="./my_task.py", work="out", rate=1, prefix="m")
    config.write_text(text, encoding="utf-8")
    for folder, path in ((tmp_path, "a/b/cfg.yaml"), (tmp_path / "a", "b/cfg.yaml"), (config.parent, "cfg.yaml")):
        done = _scepter("run", path, folder=folder)
        assert done.returncode == 0, done.stderr
        assert (folder / "out" / "checkpoints" / "m-1.pth").is_file()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    saved = config.parent / "out" / "config.yaml"
    assert _scepter("run", str(saved), "SOLVER.WORK_DIR=again", folder=elsewhere).returncode == 0
    assert (elsewhere / "again" / "checkpoints" / "m-1.pth").is_file()


def test_g09_characters_outside_ascii(tmp_path):
    text = YAML.format(tasks=TASKS, work="输出/实验 1", rate=1, prefix="模型")
    config = tmp_path / "配置.yaml"
    config.write_bytes(b"\xef\xbb\xbf" + f"# 训练\n{text}    - {{NAME: LogHook}}  # 结束\n".replace("\n", "\r\n").encode())
    done = _scepter(
        "run", "配置.yaml", folder=tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "输出" / "实验 1"
    assert (folder / "checkpoints" / "模型-1.pth").is_file()
    assert "train epoch 1/1 done" in (folder / "std_log.txt").read_text(encoding="utf-8")
    assert "输出/实验 1" in (folder / "config.yaml").read_text(encoding="utf-8")


def test_f11_one_process_opens_no_port(written):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _scepter(
            "run",
            str(written()),
            folder=".",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(taken.getsockname()[1]),
        )
    assert done.returncode == 0, done.stderr


def test_f09_ema_as_a_hook_of_ones_own(configure, tmp_path):
    import torch

    from scepter_core import HOOKS, Hook, hookimpl

    @HOOKS.register_class()
    class MeanWeights(Hook):
        """Keeps an average of the weights, and evaluates with it."""

        def __init__(self, cfg, logger=None):
            super().__init__(cfg, logger=logger)
            self.mean, self.raw = {}, {}

        @hookimpl(optionalhook=True)
        def after_step(self, solver):
            for name, weight in solver.model.named_parameters():
                old = self.mean.get(name, torch.zeros_like(weight))
                self.mean[name] = 0.5 * old + 0.5 * weight.detach()

        def before_epoch(self, solver):
            if solver.is_eval_mode:
                self.raw = {name: weight.detach().clone() for name, weight in solver.model.named_parameters()}
                solver.model.load_state_dict(self._of_training(solver))

        def after_epoch(self, solver):
            if solver.is_eval_mode:
                solver.model.load_state_dict(self.raw)

        def _of_training(self, solver):
            return next(h for h in solver.hooks_dict["train"] if isinstance(h, MeanWeights)).mean

        def state_dict(self):
            return {"mean": self.mean}

        def load_state_dict(self, state):
            self.mean = state["mean"]

    def config(epochs):
        return configure(
            TRAIN_DATA={"NAME": "Floats", "VALUES": [1]},
            EVAL_DATA={"NAME": "Floats", "VALUES": [1]},
            MAX_EPOCHS=epochs,
            TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "MeanWeights"}, {"NAME": "CheckpointHook"}],
            EVAL_HOOKS=[{"NAME": "MeanWeights"}],
        )

    run(config(2))
    solver = run(config(3), resume="auto")
    assert float(solver.model.w.detach()) == -3.0
    assert float(solver.hooks_dict["train"][1].mean["w"]) == -2.125
    assert solver.epoch_outputs["eval"]["loss"] == -2.125
