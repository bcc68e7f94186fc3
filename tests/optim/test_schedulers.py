"""Schedulers from YAML: every class that torch has."""

from __future__ import annotations

import math

import pytest
import torch
import yaml
from torch.optim import lr_scheduler

from scepter_core import ConfigError, run

# Values for whatever keys a class asks for; a class with a required key that is not among them fails its test.
VALUES = {
    "T_MAX": 7,
    "T_0": 3,
    "STEP_SIZE": 2,
    "MILESTONES": [2],
    "GAMMA": 0.5,
    "BASE_LR": 0.1,
    "MAX_LR": 1.0,
    "LR_LAMBDA": "math:cos",
    "SCHEDULERS": [{"NAME": "StepLR", "STEP_SIZE": 1}, {"NAME": "ExponentialLR", "GAMMA": 0.5}],
}
NAMES = [
    name
    for name, kind in vars(lr_scheduler).items()
    if isinstance(kind, type)
    and issubclass(kind, lr_scheduler.LRScheduler)
    and kind is not lr_scheduler.LRScheduler
    and not name.startswith("_")
]


def _torchs_rate(name, keys, updates):
    """The rate of the last of `updates`, as torch steps the class itself."""
    weight = torch.nn.Parameter(torch.zeros(()))
    weight.grad = torch.zeros(())
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.9)
    arguments = {("T_max" if key == "T_MAX" else key if key == "T_0" else key.lower()): keys[key] for key in keys}
    if "lr_lambda" in arguments:
        arguments["lr_lambda"] = math.cos
    if "schedulers" in arguments:
        arguments["schedulers"] = [lr_scheduler.StepLR(optimizer, 1), lr_scheduler.ExponentialLR(optimizer, 0.5)]
    if name == "OneCycleLR":
        arguments["total_steps"] = updates
    scheduler = getattr(lr_scheduler, name)(optimizer=optimizer, **arguments)
    for _ in range(updates - 1):
        optimizer.step()
        scheduler.step()
    return optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_of_torch_sets_torchs_rates_or_says_why_it_cannot(configure, tmp_path, name):
    config = configure(
        MAX_EPOCHS=2,
        OPTIMIZER={"NAME": "SGD", "LEARNING_RATE": 1.0, "MOMENTUM": 0.9},
        LR_SCHEDULER={"NAME": name, "UNIT": "update"},
        TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "LrHook", "WARMUP_FUNC": None}],
    )
    file = tmp_path / "cfg.yaml"
    file.write_text(yaml.safe_dump(config))
    keys = {}
    try:
        solver = run(file)
    except ConfigError as error:
        missing = [problem.path.rpartition(".")[2] for problem in error.problems]
        keys = {key: VALUES[key] for key in missing if key != "NAME"}
        if name == "ReduceLROnPlateau":
            assert "follows an epoch metric: name it in LR_SCHEDULER.MONITOR" in str(error)
            keys = {"MONITOR": "mean"}
        config["SOLVER"]["LR_SCHEDULER"].update(keys)
        file.write_text(yaml.safe_dump(config))
        solver = run(file)
    assert type(solver.lr_scheduler) is getattr(lr_scheduler, name)
    if name == "ReduceLROnPlateau":
        assert solver.optimizer.param_groups[0]["lr"] == 1.0  # one epoch without improvement is within its patience
    else:
        assert solver.optimizer.param_groups[0]["lr"] == pytest.approx(_torchs_rate(name, keys, 6), rel=1e-9)


def test_the_loop_is_over_something():
    assert {"LambdaLR", "SequentialLR", "ChainedScheduler", "OneCycleLR", "ReduceLROnPlateau"} <= set(NAMES)


def test_the_written_configuration_of_a_composed_scheduler_repeats_the_run(configure, tmp_path):
    parts = [{"NAME": "LinearLR", "TOTAL_ITERS": 2}, {"NAME": "StepAnnealingLR", "DECAY_MODE": "linear"}]
    scheduler = {"NAME": "SequentialLR", "SCHEDULERS": parts, "MILESTONES": [2], "UNIT": "update"}
    hooks = [{"NAME": "BackwardHook"}, {"NAME": "LrHook", "WARMUP_FUNC": None}]
    first = run(configure(LR_SCHEDULER=scheduler, TRAIN_HOOKS=hooks))
    again = run(tmp_path / "run/config.yaml", [f"SOLVER.WORK_DIR={tmp_path}/again"])
    expected = sum((1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25))  # six updates, each by its rate
    assert [-first.model.w.item(), -again.model.w.item()] == pytest.approx([expected, expected], rel=1e-6)


def test_a_value_that_torch_refuses_is_a_config_error(configure):
    wrong = {"NAME": "OneCycleLR", "MAX_LR": 1.0, "PCT_START": 2.0, "UNIT": "update"}
    with pytest.raises(ConfigError, match=r"SOLVER\.LR_SCHEDULER: OneCycleLR refuses a value: Expected float between"):
        run(configure(LR_SCHEDULER=wrong))


def test_a_lambda_is_named_by_its_module_and_never_a_number(configure):
    with pytest.raises(ConfigError, match=r"LR_LAMBDA: must be the name of a function or class as module:attribute"):
        run(configure(LR_SCHEDULER={"NAME": "LambdaLR", "LR_LAMBDA": 0.1}))
    with pytest.raises(ConfigError, match="cannot import math:cosine"):
        run(configure(LR_SCHEDULER={"NAME": "LambdaLR", "LR_LAMBDA": "math:cosine"}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"NAME": "StepLR", "STEP_SIZE": 0}, "STEP_SIZE: must be >= 1"),
        ({"NAME": "CosineAnnealingLR", "T_MAX": -3}, "T_MAX: must be >= 1"),
        ({"NAME": "LinearLR", "TOTAL_ITERS": 0}, "TOTAL_ITERS: must be >= 1"),
        ({"NAME": "CyclicLR", "BASE_LR": 0.1, "MAX_LR": 1.0, "STEP_SIZE_UP": 0}, "STEP_SIZE_UP: must be >= 1"),
        ({"NAME": "MultiStepLR", "MILESTONES": 5}, "MILESTONES: must be a list of integers"),
    ],
)
def test_counts_that_torch_divides_by_and_lists_that_it_reads_are_checked_first(configure, keys, message):
    with pytest.raises(ConfigError, match=rf"SOLVER\.LR_SCHEDULER\.{message}"):
        run(configure(LR_SCHEDULER=keys, TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "LrHook", "WARMUP_FUNC": None}]))
