"""Schedulers made of others, and SCEPTER's own, as the steps of a run use them."""

from __future__ import annotations

import math

import pytest
import torch
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, SequentialLR, StepLR

from scepter_core import ConfigError

NO_WARMUP = {"WARMUP_FUNC": None}
BY_STEP = {"WARMUP_FUNC": None, "SET_BY_EPOCH": False}
WARM = {"NAME": "LinearLR", "START_FACTOR": 0.5, "TOTAL_ITERS": 2}


def cosine(position, length):
    return 0.5 * (1 + math.cos(math.pi * position / length))


def sequence(*schedulers, milestones, **keys):
    return {"NAME": "SequentialLR", "SCHEDULERS": list(schedulers), "MILESTONES": milestones, **keys}


# --- SequentialLR and ChainedScheduler ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", [6, "auto"])  # auto: from its milestone to the end of the run
def test_a_sequence_by_updates(train, length):
    parts = sequence(WARM, {"NAME": "CosineAnnealingLR", "T_MAX": length}, milestones=[2], UNIT="update")
    rates = train(BY_STEP, parts, batches=4, epochs=2, second=0.1)
    expected = [0.5, 0.75, *(cosine(k, 6) for k in range(6))]
    assert rates.first == pytest.approx(expected, rel=1e-12)
    assert rates.second == pytest.approx([rate / 10 for rate in expected], rel=1e-12)


def test_auto_is_the_stretch_between_two_milestones(train):
    fall = {"NAME": "CosineAnnealingLR", "T_MAX": "auto"}
    rates = train(BY_STEP, sequence(fall, fall, fall, milestones=[4, 6], UNIT="update"), batches=9)
    expected = [*(cosine(k, 4) for k in range(4)), *(cosine(k, 2) for k in range(2)), *(cosine(k, 3) for k in range(3))]
    assert rates.first == pytest.approx(expected, rel=1e-12)


def test_a_sequence_by_epochs(train):
    parts = sequence(WARM, {"NAME": "ExponentialLR", "GAMMA": 0.5}, milestones=[2])
    assert train(NO_WARMUP, parts, epochs=5).by_epoch() == pytest.approx([0.5, 0.75, 1, 0.5, 0.25], rel=1e-12)


def test_the_warmup_leads_into_a_sequence(train):
    parts = sequence(WARM, {"NAME": "ExponentialLR", "GAMMA": 0.5}, milestones=[2])
    rates = train({"WARMUP_EPOCHS": 2, "WARMUP_START_LR": 0.2}, parts, epochs=4)
    assert rates.by_epoch() == pytest.approx([0.2, 0.6, 1, 0.5], rel=1e-12)


def test_a_chain_multiplies(train):
    parts = [{"NAME": "ConstantLR", "FACTOR": 0.1, "TOTAL_ITERS": 2}, {"NAME": "ExponentialLR", "GAMMA": 0.5}]
    rates = train(BY_STEP, {"NAME": "ChainedScheduler", "SCHEDULERS": parts, "UNIT": "update"})
    assert rates.first == pytest.approx([0.1, 0.05, 0.25, 0.125], rel=1e-12)


@pytest.mark.filterwarnings("ignore:Detected call of")  # torch, of its own parts
def test_parts_of_parts_are_as_when_torch_steps_them(train):
    inner = sequence(WARM, {"NAME": "ExponentialLR", "GAMMA": 0.9}, milestones=[2])
    whole = sequence(inner, {"NAME": "StepLR", "STEP_SIZE": 2}, milestones=[4], UNIT="update")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    warm, fall = LinearLR(optimizer, 0.5, total_iters=2), ExponentialLR(optimizer, 0.9)
    scheduler = SequentialLR(optimizer, [SequentialLR(optimizer, [warm, fall], [2]), StepLR(optimizer, 2)], [4])
    optimizer.param_groups[0]["params"][0].grad = torch.zeros(())
    expected = []
    for _ in range(8):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert train(BY_STEP, whole, epochs=2).first == expected


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (sequence(WARM, WARM, milestones=[]), "2 SCHEDULERS need 1 MILESTONES"),
        (sequence(WARM, WARM, WARM, milestones=[3, 3]), "MILESTONES must rise, the first from 1 on"),
        (sequence(WARM, WARM, milestones=[0]), "MILESTONES must rise, the first from 1 on"),
        (sequence(milestones=[]), "SCHEDULERS must have an entry at least"),
        (sequence(WARM, {"NAME": "ReduceLROnPlateau"}, milestones=[2]), "ReduceLROnPlateau has no clock of its own"),
        (
            sequence(WARM, {"NAME": "ChainedScheduler", "SCHEDULERS": [WARM]}, milestones=[2]),
            "ChainedScheduler has no clock of its own",
        ),
        (sequence(WARM, {**WARM, "UNIT": "update"}, milestones=[2]), "the UNIT of SCHEDULERS is that of the whole"),
        (sequence(WARM, {**WARM, "TOTAL_ITER": 3}, milestones=[2]), r"SCHEDULERS\[1\]\.TOTAL_ITER: unknown key"),
        (sequence(WARM, {"NAME": "CosineLR"}, milestones=[2]), r"SCHEDULERS\[1\]\.NAME: unknown LR scheduler CosineLR"),
        (
            sequence(WARM, {"NAME": "CosineAnnealingLR", "T_MAX": "auto"}, milestones=[2]),
            r"SCHEDULERS\[1\]\.T_MAX: the length of the run is not known",
        ),
        (
            sequence(WARM, {"NAME": "StepAnnealingLR", "WARMUP_STEPS": 5}, milestones=[2], UNIT="update"),
            r"SCHEDULERS\[1\]: StepAnnealingLR refuses a value: TOTAL_STEPS 2 must be above WARMUP_STEPS 5",
        ),
    ],
)
def test_what_cannot_be_composed_is_a_located_config_error(train, scheduler, message):
    with pytest.raises(ConfigError, match=rf"SOLVER\.LR_SCHEDULER.*{message}"):
        train(NO_WARMUP, scheduler)


def test_a_sequence_goes_by_whole_epochs(train):
    with pytest.raises(ConfigError, match=r"SET_BY_EPOCH.*SequentialLR goes by whole steps only"):
        train(BY_STEP, sequence(WARM, WARM, milestones=[2]))


# --- SCEPTER's own -----------------------------------------------------------------------------------------------


def test_warmup_to_constant(train):
    rates = train(BY_STEP, {"NAME": "WarmupToConstantLR", "WARMUP_STEPS": 4}, batches=3, epochs=2, second=0.1)
    assert rates.first == [0.25, 0.5, 0.75, 1, 1, 1]
    assert rates.second == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rel=1e-12)


def test_warmup_of_no_steps(train):
    assert train(BY_STEP, {"NAME": "WarmupToConstantLR", "WARMUP_STEPS": 0}).first == [1] * 4


@pytest.mark.parametrize("total", [{"TOTAL_STEPS": 8}, {"TOTAL_STEPS": "auto"}, {"TOTAL_STEPS": None}, {}])
def test_step_annealing_over_the_run(train, total):
    if total.get("TOTAL_STEPS", 0) is None:
        with pytest.raises(ConfigError, match="TOTAL_STEPS must be an integer, not None"):
            train(BY_STEP, {"NAME": "StepAnnealingLR", **total})
        return
    rates = train(BY_STEP, {"NAME": "StepAnnealingLR", "WARMUP_STEPS": 2, **total}, epochs=2)
    assert rates.first == pytest.approx([0.5, 1, 1, *(cosine(k, 6) for k in range(1, 6))], rel=1e-12)


def test_step_annealing_counts_updates(train):
    rates = train(BY_STEP, {"NAME": "StepAnnealingLR", "DECAY_MODE": "linear"}, epochs=2, ACCU_STEP=2)
    assert rates.first == pytest.approx([1, 1, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25], rel=1e-12)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25, 0.2, 0.2]),
        ("none", [0.5, 1, 1, 1, 1, 1, 1, 1]),
        ("cosine", [0.5, 1, 1, cosine(1, 4), 0.5, 0.2, 0.2, 0.2]),
    ],
)
def test_the_shapes_of_the_fall_and_the_lowest_rate(train, mode, expected):
    keys = {"WARMUP_STEPS": 2, "TOTAL_STEPS": 6, "DECAY_MODE": mode, "MIN_LR": 0.2}
    rates = train(BY_STEP, {"NAME": "StepAnnealingLR", **keys}, batches=8)
    assert rates.first == pytest.approx(expected, rel=1e-12)


def test_the_lowest_rate_is_never_above_the_base_rate(train):
    keys = {"WARMUP_STEPS": 2, "TOTAL_STEPS": 4, "MIN_LR": 0.5}
    assert train(BY_STEP, {"NAME": "StepAnnealingLR", **keys}, rate=0.1).first == [0.1] * 4


def test_step_annealing_by_epochs(train):
    keys = {"TOTAL_STEPS": 4, "DECAY_MODE": "linear", "UNIT": "epoch"}
    rates = train(BY_STEP, {"NAME": "StepAnnealingLR", **keys}, batches=2, epochs=4)
    assert rates.first == pytest.approx([1 - k / 8 for k in range(8)], rel=1e-12)


def test_lino_poly_falls_over_epochs(train):
    rates = train(NO_WARMUP, {"NAME": "LinoPolyLR", "END_EPOCH": 4, "POWER": 2}, epochs=4)
    assert rates.by_epoch() == pytest.approx([(1 - e / 4) ** 2 for e in range(4)], rel=1e-12)


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        ({"NAME": "StepAnnealingLR", "TOTAL_STEPS": 3}, "with TOTAL_STEPS 3 of 8 updates; then the lowest rate stands"),
        ({"NAME": "LinoPolyLR", "END_EPOCH": 1, "UNIT": "epoch"}, None),
        ({"NAME": "LinoPolyLR", "END_EPOCH": 3, "UNIT": "update"}, "with END_EPOCH 3 of 8 updates; then the rate is 0"),
        ({"NAME": "StepAnnealingLR", "TOTAL_STEPS": 3, "DECAY_MODE": "none"}, None),
        ({"NAME": "StepAnnealingLR"}, None),
    ],
)
def test_a_fall_that_ends_before_the_run_is_said(train, capsys, scheduler, said):
    train(NO_WARMUP, scheduler, epochs=2)
    out = capsys.readouterr().out
    assert (said in out) if said else ("ends before the run" not in out)


@pytest.mark.parametrize(
    "scheduler",
    [
        {"NAME": "StepAnnealingLR", "TOTAL_STEPS": 2, "WARMUP_STEPS": 2},
        {"NAME": "StepAnnealingLR", "DECAY_MODE": "steep"},
        {"NAME": "StepAnnealingLR", "MIN_LR": -1},
        {"NAME": "WarmupToConstantLR", "WARMUP_STEPS": -1},
        {"NAME": "LinoPolyLR"},
        {"NAME": "LinoPolyLR", "END_EPOCH": 0},
    ],
)
def test_values_that_mean_nothing_are_config_errors(train, scheduler):
    with pytest.raises(ConfigError, match=r"SOLVER\.LR_SCHEDULER"):
        train(BY_STEP, scheduler)


def test_a_length_that_nobody_knows_is_asked_for(train):
    with pytest.raises(ConfigError, match=r"SOLVER\.LR_SCHEDULER\.TOTAL_STEPS: the length of the run is not known"):
        train(BY_STEP, {"NAME": "StepAnnealingLR"}, data="LrTestStream", epochs=2)


def test_it_warns_where_no_hook_drives_it(train, capsys):
    hooks = [{"NAME": "LrTestBackward"}, {"NAME": "LrTestRecorder"}]
    train(scheduler={"NAME": "StepAnnealingLR"}, TRAIN_HOOKS=hooks)
    assert "no hook in TRAIN_HOOKS drives LR_SCHEDULER" in capsys.readouterr().out
