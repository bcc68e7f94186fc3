"""What a resume says of a configuration that is not the checkpoint's."""

from __future__ import annotations

import os

import pytest
import torch

from scepter_core import read_checkpoint, run
from scepter_core.solver.changes import changed_keys

CAN_DIFFER = "changed since the checkpoint, and the run can differ from one that was never stopped: "
WATCHES = "changed since the checkpoint: "


@pytest.fixture
def resumed(configure, tmp_path, capsys):
    """resumed(before, after) → (warned, told): what a resume says that has `after` as keys of SOLVER in place of `before`."""

    def make(before, after, *, env=None, step=1, config=None):
        hooks = [{"NAME": "BackwardHook"}, {"NAME": "LogHook"}, {"NAME": "CheckpointHook", "INTERVAL_STEPS": 1}]
        run(configure(TRAIN_HOOKS=hooks, **before))
        path = tmp_path / f"run/checkpoints/ldm_step-{step}.pth"
        if config is not None:
            torch.save({**read_checkpoint(str(path)), "config": config}, path)
        capsys.readouterr()
        run(configure(**{"TRAIN_HOOKS": hooks, "ENV": env or {"DEVICE": "cpu"}, **after}), resume=str(path))
        lines = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
        said = [(level, text) for _, _, level, text in lines]
        return (
            [text.removeprefix(CAN_DIFFER) for level, text in said if text.startswith(CAN_DIFFER) and level == "WARNING"],
            [text.removeprefix(WATCHES) for level, text in said if text.startswith(WATCHES) and level == "INFO"],
        )

    return make


def floats(**keys):
    return {"TRAIN_DATA": {"NAME": "Floats", "VALUES": [1, 1, 1], **keys}}


HOOKS = [{"NAME": "BackwardHook"}, {"NAME": "LogHook"}, {"NAME": "CheckpointHook", "INTERVAL_STEPS": 1}]


@pytest.mark.parametrize(
    ("before", "after", "warned", "told"),
    [
        ({}, {}, [], []),
        ({}, {"MAX_EPOCHS": 3, "EVAL_INTERVAL": 2}, [], ["SOLVER.MAX_EPOCHS was 2, is now 3", "SOLVER.EVAL_INTERVAL is new: 2"]),
        (floats(), floats(BATCH_SIZE=2), ["SOLVER.TRAIN_DATA.BATCH_SIZE was 1, is now 2"], []),
        (floats(), floats(VALUES=[1, 2]), ["SOLVER.TRAIN_DATA.VALUES was [1.0, 1.0, 1.0], is now [1.0, 2.0]"], []),
        (floats(), floats(SHUFFLE=False), ["SOLVER.TRAIN_DATA.SHUFFLE is new: false"], []),
        (floats(), floats(NUM_WORKERS=1), [], ["SOLVER.TRAIN_DATA.NUM_WORKERS was 0, is now 1"]),
        ({}, {"MODEL": {"NAME": "GradProbe", "SCALE": 2}}, ["SOLVER.MODEL.SCALE was 1.0, is now 2.0"], []),
        ({}, {"TRAIN_PRECISION": "bf16"}, ["SOLVER.TRAIN_PRECISION was 32, is now bf16"], []),
        ({}, {"ACCU_STEP": 2}, ["SOLVER.ACCU_STEP was 1, is now 2"], []),
        (
            {},
            {"OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 0.5, "WEIGHT_DECAY": 0.1}},
            ["SOLVER.OPTIMIZER.LEARNING_RATE was 1.0, is now 0.5", "SOLVER.OPTIMIZER.WEIGHT_DECAY was 0.0, is now 0.1"],
            [],
        ),
        (  # of another data set, only what both have
            {**floats(), "EVAL_DATA": {"NAME": "Floats", "VALUES": [1]}},
            {"TRAIN_DATA": {"NAME": "Stream", "VALUES": [1, 1, 1], "BATCH_SIZE": 3}},
            ["SOLVER.TRAIN_DATA.NAME was Floats, is now Stream", "SOLVER.TRAIN_DATA.BATCH_SIZE was 1, is now 3"],
            ["SOLVER.EVAL_DATA.NAME was Floats, is gone"],
        ),
        (
            {"TRAIN_DATA": {"NAME": "Stream", "VALUES": [1, 1, 1]}},
            {"TRAIN_DATA": {"NAME": "Stream", "VALUES": [1, 1, 1], "NUM_WORKERS": 1}},
            ["SOLVER.TRAIN_DATA.NUM_WORKERS was 0, is now 1"],
            [],
        ),
        (  # a hook with a role is part of a step; hooks that are gone or new are said by their state
            {},
            {
                "TRAIN_HOOKS": [
                    {"NAME": "BackwardHook", "GRADIENT_CLIP": 9},
                    {"NAME": "CheckpointHook", "INTERVAL_STEPS": 2},
                    {"NAME": "DrawingHook"},
                ]
            },
            ["SOLVER.TRAIN_HOOKS[BackwardHook].GRADIENT_CLIP was -1.0, is now 9.0"],
            ["SOLVER.TRAIN_HOOKS[CheckpointHook].INTERVAL_STEPS was 1, is now 2"],
        ),
    ],
)
def test_a_line_for_every_key(resumed, before, after, warned, told):
    assert resumed(before, after) == (warned, told)


def test_the_environment_and_the_folder(resumed, tmp_path):
    warned, told = resumed({}, {"WORK_DIR": str(tmp_path / "b")}, env={"SEED": 1, "DETERMINISTIC": True, "DEVICE": "cpu"})
    assert warned == ["ENV.SEED was 0, is now 1", "ENV.DETERMINISTIC was false, is now true"]
    assert len(told) == 1
    assert told[0].startswith("SOLVER.WORK_DIR was ")


def test_a_length_that_no_key_explains(configure, tmp_path, capsys):
    """Files of a data set that grew, for one."""
    (tmp_path / "values").write_text("3")
    task = tmp_path / "growing.py"
    task.write_text(
        "import torch\nfrom scepter_core import DATASETS\n"
        "@DATASETS.register_class()\n"
        "class ChangesTestGrowing(torch.utils.data.Dataset):\n"
        f"    def __len__(self): return int(open({str(tmp_path / 'values')!r}).read())\n"
        "    def __getitem__(self, index): return {'x': torch.tensor(1.0)}\n"
    )

    def config():
        made = configure(TRAIN_DATA={"NAME": "ChangesTestGrowing"}, TRAIN_HOOKS=HOOKS)
        return {**made, "PLUGINS": [*made["PLUGINS"], str(task)]}

    run(config())
    (tmp_path / "values").write_text("4")
    capsys.readouterr()
    run(config(), resume=str(tmp_path / "run/checkpoints/ldm_step-1.pth"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "changed since" in line]
    assert len(lines) == 1
    assert lines[0].endswith(CAN_DIFFER + "an epoch had 3 training steps, and has 4 now")


@pytest.mark.parametrize("text", ["", "a: [", "3", "- 1"])
def test_without_a_configuration_in_the_file_what_it_says_otherwise(resumed, text):
    """As a converted checkpoint: the optimizer's own numbers and the seed are all that is known."""
    after = {"OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 0.5}}
    warned, told = resumed({}, after, env={"SEED": 1, "DEVICE": "cpu"}, config=text)
    assert warned == ["parameter group 0: lr was 1.0, is now 0.5", "parameter group 0: initial_lr was 1.0, is now 0.5",
                      "ENV.SEED was 0, is now 1"]  # fmt: skip
    assert told == []


def test_secrets_stay_references():
    before = "SOLVER:\n  NAME: A\n  TOKEN: ${env:OLD_TOKEN}\n"
    (change,) = changed_keys(before, before.replace("OLD_TOKEN", "NEW_TOKEN"))
    assert str(change) == "SOLVER.TOKEN was ${env:OLD_TOKEN}, is now ${env:NEW_TOKEN}"


def test_a_secret_of_the_environment_is_in_no_line_and_no_file(resumed, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "SCEPTER_TEST_SECRET", "hunter2")
    metric = {"NAME": "LastValue", "KEYS": ["x"], "LOG_NAME": "${env:SCEPTER_TEST_SECRET}"}
    warned, told = resumed({}, {"METRICS": [metric]})
    assert (warned, told) == ([], ["SOLVER.METRICS[LastValue].NAME is new: LastValue"])
    assert "hunter2" not in (tmp_path / "run/config.yaml").read_text()


def test_long_values_are_cut_and_lists_of_sections_go_by_name():
    before = "M:\n- NAME: A\n  K: 1\n- NAME: A\n  K: 2\n- NAME: B\nL: [1, {x: 2}]\nT: " + "a" * 100 + "\n"
    now = "M:\n- NAME: B\n- NAME: A\n  K: 1\n- NAME: A\n  K: 3\nL: [1, {x: 3}]\nT: " + "b" * 100 + "\n"
    assert [str(change) for change in changed_keys(before, now)] == [
        "M[A#2].K was 2, is now 3",
        "L was [1, {x: 2}], is now [1, {x: 3}]",
        f"T was {'a' * 59}…, is now {'b' * 59}…",
    ]


@pytest.mark.parametrize(
    ("name", "key", "value"), [("Adam", "AMSGRAD", True), ("RMSprop", "CENTERED", True), ("RMSprop", "MOMENTUM", 0.9)]
)
def test_an_option_whose_state_the_checkpoint_has_not_begins_it(resumed, name, key, value):
    optimizer = {"NAME": name, "LEARNING_RATE": 0.1}
    warned, _ = resumed({"OPTIMIZER": optimizer}, {"OPTIMIZER": {**optimizer, key: value}})
    before = {"AMSGRAD": "false", "CENTERED": "false", "MOMENTUM": "0.0"}[key]
    assert warned == [f"SOLVER.OPTIMIZER.{key} was {before}, is now {str(value).lower()}"]
