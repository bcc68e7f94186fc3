"""The rates that steps of a run use."""

from __future__ import annotations

import math

import pytest

from scepter_core import ConfigError, RunError

NO_WARMUP = {"WARMUP_FUNC": None}
BY_STEP = {"WARMUP_FUNC": None, "SET_BY_EPOCH": False}
COSINE = {"NAME": "CosineAnnealingLR", "T_MAX": 10}


def test_b01_linear_warmup_by_step(train):
    rates = train(
        {"WARMUP_START_LR": 1e-4, "WARMUP_EPOCHS": 1, "SET_BY_EPOCH": False}, batches=10, epochs=2, rate=1e-3
    )
    assert rates.first == pytest.approx([1e-4 + 9e-5 * k for k in range(10)] + [1e-3] * 10, rel=1e-12)
    assert rates.first[7] == pytest.approx(0.00073)
    assert rates.first[10:] == [1e-3] * 10


def test_b03_warmup_by_epoch(train):
    rates = train({"WARMUP_START_LR": 0.1, "WARMUP_EPOCHS": 2}, epochs=4, rate=0.5)
    assert rates.by_epoch() == pytest.approx([0.1, 0.3, 0.5, 0.5], rel=1e-12)


def test_b05_each_group_keeps_its_own_rate(train):
    rates = train({"WARMUP_START_LR": 0, "SET_BY_EPOCH": False}, epochs=2, rate=0.1, second=0.01)
    assert rates.first == pytest.approx([0, 0.025, 0.05, 0.075] + [0.1] * 4)
    assert rates.second == pytest.approx([0, 0.0025, 0.005, 0.0075] + [0.01] * 4)


def test_the_start_scales_with_each_group(train):
    rates = train({"WARMUP_START_LR": 0.02, "SET_BY_EPOCH": False}, rate=0.1, second=0.01)
    assert (rates.first[0], rates.second[0]) == pytest.approx((0.02, 0.002))


@pytest.mark.parametrize(
    "scheduler",
    [
        {"NAME": "CosineAnnealingLR", "T_MAX": 4, "UNIT": "update"},
        {"NAME": "CosineAnnealingLR", "T_MAX": "auto", "UNIT": "update"},
        {"NAME": "CosineAnnealingLR", "T_MAX": 2},
    ],
)
def test_b06_a_schedule_counts_updates(train, scheduler):
    rates = train(BY_STEP, scheduler, batches=8, epochs=2, ACCU_STEP=4)
    windows = [[rate] * 4 for rate in (1.0, 0.853553, 0.5, 0.146447)]
    assert rates.first == pytest.approx([rate for window in windows for rate in window], abs=1e-6)
    assert len(set(rates.first[4:8])) == 1


def test_b07_rates_after_a_resume(train, tmp_path):
    whole = train(NO_WARMUP, COSINE, batches=3, epochs=10)
    train(NO_WARMUP, COSINE, batches=3, epochs=4, save_at=12)
    resumed = train(NO_WARMUP, COSINE, batches=3, epochs=10, load=tmp_path / "12.pth")
    assert resumed.by_epoch() == pytest.approx(
        [0.654508, 0.5, 0.345492, 0.206107, 0.095492, 0.024472], abs=1e-6
    )
    assert resumed.first == whole.first[12:]


def test_b09_a_schedule_that_ends_before_the_run_is_said(train, tmp_path, capsys):
    train(NO_WARMUP, {**COSINE, "T_MAX": 4}, epochs=4, save_at=16)
    assert "ends before the run" not in capsys.readouterr().out
    resumed = train(NO_WARMUP, {**COSINE, "T_MAX": 4}, epochs=8, load=tmp_path / "16.pth")
    said = capsys.readouterr().out
    assert (
        "CosineAnnealingLR ends before the run, with T_MAX 4 of 8 epochs; then the rate rises again" in said
    )
    assert resumed.by_epoch() == pytest.approx([0, 0.146447, 0.5, 0.853553], abs=1e-6)


def test_b09_another_length_at_the_resume_is_said_and_used(train, tmp_path, capsys):
    train(NO_WARMUP, {**COSINE, "T_MAX": 4}, epochs=4, save_at=16)
    capsys.readouterr()
    resumed = train(NO_WARMUP, {**COSINE, "T_MAX": 8}, epochs=8, load=tmp_path / "16.pth")
    said = capsys.readouterr().out
    assert "T_MAX was 4, is now 8" in said
    assert "ends before the run" not in said
    assert resumed.by_epoch() == pytest.approx([0.5 * (1 + math.cos(math.pi * e / 8)) for e in range(4, 8)])


PLATEAU = {"NAME": "ReduceLROnPlateau", "MODE": "min", "FACTOR": 0.1, "PATIENCE": 0, "MONITOR": "loss"}


def test_b10_plateau_follows_the_eval(train):
    rates = train(NO_WARMUP, PLATEAU, epochs=4, eval_losses=[1, 1, 1, 0.5])
    assert rates.by_epoch() == pytest.approx([1, 1, 0.1, 0.01])
    assert rates.solver.optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_b10_plateau_without_a_metric_is_a_config_error(train):
    unnamed = {key: value for key, value in PLATEAU.items() if key != "MONITOR"}
    with pytest.raises(ConfigError, match="MONITOR"):
        train(NO_WARMUP, unnamed, epochs=4, eval_losses=[1, 1, 1, 0.5])


def test_plateau_names_the_metrics_there_are(train):
    with pytest.raises(RunError, match=r"no metric accuracy in eval; there are: loss"):
        train(NO_WARMUP, {**PLATEAU, "MONITOR": "accuracy"}, epochs=2, eval_losses=[1, 1])


def test_plateau_without_an_eval_follows_training(train):
    # The loss is -2 · updates · rate · …: it falls every epoch, so MODE max sees no improvement.
    rates = train(NO_WARMUP, {**PLATEAU, "MODE": "max"}, epochs=3)
    assert rates.by_epoch() == pytest.approx([1, 1, 0.1])


def test_plateau_and_warmup_do_not_mix(train, tmp_path):
    warmup = {"WARMUP_EPOCHS": 2, "WARMUP_START_LR": 0.2}
    losses = [1, 1, 1, 0.5]
    whole = train(warmup, PLATEAU, epochs=4, eval_losses=losses)
    # Epoch 2 is half way from 0.2 to the plateau's 1.0; its second loss makes that 0.1, where epoch 3 is.
    assert whole.by_epoch() == pytest.approx([0.2, 0.6, 0.1, 0.01])
    train(warmup, PLATEAU, epochs=1, eval_losses=losses, save_at=4)
    resumed = train(warmup, PLATEAU, epochs=4, eval_losses=losses, load=tmp_path / "4.pth")
    assert resumed.first == whole.first[4:]


@pytest.mark.parametrize("total", [{"TOTAL_STEPS": 9}, {"TOTAL_STEPS": "auto"}, {}])
@pytest.mark.parametrize("by_epoch", [True, False])
def test_b11_one_cycle_over_the_run(train, total, by_epoch):
    rates = train(
        {**NO_WARMUP, "SET_BY_EPOCH": by_epoch},
        {"NAME": "OneCycleLR", "MAX_LR": 1.0, "UNIT": "update", **total},
        batches=5,
        epochs=3,
        ACCU_STEP=2,
    )
    updates = [rates.first[step] for step in (0, 2, 4, 5, 7, 9, 10, 12, 14)]
    assert (updates[0], updates[2], updates[8]) == pytest.approx((0.04, 0.994415, 4e-06), abs=1e-6)
    assert rates.first[0] == rates.first[1]
    assert rates.solver.total_updates == 9
    assert rates.momentum[0] == pytest.approx(0.95)
    assert min(rates.momentum) < 0.86


def test_b13_a_start_above_the_rate_it_leads_to_is_said(train, capsys):
    rates = train({"SET_BY_EPOCH": False}, rate=1e-6)
    said = capsys.readouterr().out
    assert "WARMUP_START_LR 0.0001 is above the rate that it leads to, 1e-06" in said
    assert rates.first == pytest.approx([1e-4 - 9.9e-5 * k / 4 for k in range(4)])


def test_a_start_below_is_not_worth_a_warning(train, capsys):
    train(rate=1e-3)
    assert "WARMUP_START_LR" not in capsys.readouterr().out


def test_the_schedulers_clock_does_not_wait_for_the_warmup(train):
    rates = train({"WARMUP_EPOCHS": 2, "WARMUP_START_LR": 0.0}, COSINE, epochs=4)
    cosine = [0.5 * (1 + math.cos(math.pi * e / 10)) for e in range(4)]
    assert rates.by_epoch() == pytest.approx([0, cosine[2] / 2, cosine[2], cosine[3]])


def test_with_unit_update_the_warmup_leads_to_the_rate_after_its_updates(train):
    scheduler = {"NAME": "CosineAnnealingLR", "T_MAX": 6, "UNIT": "update"}
    rates = train(
        {"WARMUP_EPOCHS": 1, "WARMUP_START_LR": 0.0, "SET_BY_EPOCH": False},
        scheduler,
        batches=5,
        epochs=2,
        ACCU_STEP=2,
    )
    target = 0.5  # cosine at 3 of 6 updates
    cosine = [0.5 * (1 + math.cos(math.pi * k / 6)) for k in range(6)]
    windows = [0, 0, 0.4 * target, 0.4 * target, 0.8 * target]
    assert rates.first == pytest.approx([*windows, cosine[3], cosine[3], cosine[4], cosine[4], cosine[5]])


def test_without_warmup_and_scheduler_the_base_rate_stands(train):
    assert train(NO_WARMUP, epochs=2, rate=0.3).first == [0.3] * 8
    assert train({"WARMUP_EPOCHS": 0}, epochs=2, rate=0.3).first == [0.3] * 8


SEQUENCE = {
    "NAME": "SequentialLR",
    "SCHEDULERS": [
        {"NAME": "LinearLR", "START_FACTOR": 0.25, "TOTAL_ITERS": 2},
        {"NAME": "CosineAnnealingLR", "T_MAX": 4},
    ],
    "MILESTONES": [2],
}


@pytest.mark.parametrize("save_at", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize(
    ("hook", "scheduler"),
    [
        ({"WARMUP_EPOCHS": 1.5, "SET_BY_EPOCH": False, "WARMUP_START_LR": 0.01}, None),
        ({"WARMUP_EPOCHS": 1.5, "SET_BY_EPOCH": False, "WARMUP_START_LR": 0.01}, COSINE),
        ({"WARMUP_EPOCHS": 2, "WARMUP_START_LR": 0.01}, COSINE),
        (
            {"WARMUP_EPOCHS": 1, "WARMUP_START_LR": 0.01},
            {"NAME": "LrTestFading", "UNIT": "update"},
        ),
        (BY_STEP, {"NAME": "OneCycleLR", "MAX_LR": 1.0, "UNIT": "update"}),
        (BY_STEP, {"NAME": "CyclicLR", "BASE_LR": 0.1, "MAX_LR": 1.0, "STEP_SIZE_UP": 2, "UNIT": "update"}),
        (BY_STEP, {"NAME": "StepAnnealingLR", "WARMUP_STEPS": 2}),
        ({"WARMUP_EPOCHS": 1, "WARMUP_START_LR": 0.01}, {**SEQUENCE, "UNIT": "update"}),
        ({"WARMUP_EPOCHS": 1, "WARMUP_START_LR": 0.01}, SEQUENCE),
        (BY_STEP, {"NAME": "ChainedScheduler", "SCHEDULERS": SEQUENCE["SCHEDULERS"], "UNIT": "update"}),
    ],
)
def test_a_resume_anywhere_gives_the_same_rates(train, tmp_path, hook, scheduler, save_at):
    whole = train(hook, scheduler, batches=4, epochs=3, second=0.1, ACCU_STEP=2, save_at=save_at)
    resumed = train(
        hook, scheduler, batches=4, epochs=3, second=0.1, ACCU_STEP=2, load=tmp_path / f"{save_at}.pth"
    )
    assert resumed.first == whole.first[save_at:]
    assert resumed.second == whole.second[save_at:]
    assert resumed.momentum == whole.momentum[save_at:]


@pytest.mark.parametrize(
    ("hook", "key"),
    [(BY_STEP, "SET_BY_EPOCH"), ({"WARMUP_EPOCHS": 1.5, "SET_BY_EPOCH": True}, "WARMUP_EPOCHS")],
)
def test_a_scheduler_of_whole_steps_refuses_fractions(train, hook, key):
    with pytest.raises(ConfigError, match=rf"{key}.*LrTestFading goes by whole steps only"):
        train(hook, {"NAME": "LrTestFading"})


def test_a_scheduler_of_whole_steps_goes_by_epochs(train):
    rates = train(
        {"WARMUP_EPOCHS": 1, "WARMUP_START_LR": 0.5},
        {"NAME": "LrTestFading"},
        epochs=4,
    )
    assert rates.by_epoch() == pytest.approx([0.5, 0.5, 0.125, 0.015625])


def test_fractions_need_a_loader_with_a_length(train):
    for hook, scheduler in ((BY_STEP, COSINE), ({"SET_BY_EPOCH": False}, None)):
        with pytest.raises(RunError, match="the training loader has no length"):
            train(hook, scheduler, data="LrTestStream")


def test_whole_epochs_and_updates_need_no_length(train):
    assert train(NO_WARMUP, COSINE, data="LrTestStream", epochs=2).by_epoch() == pytest.approx(
        [1, 0.975528], abs=1e-6
    )
    by_update = train(BY_STEP, {**COSINE, "UNIT": "update"}, data="LrTestStream")
    assert by_update.first == pytest.approx([0.5 * (1 + math.cos(math.pi * k / 10)) for k in range(4)])


def test_a_changed_learning_rate_holds_after_the_resume(train, tmp_path):
    train(NO_WARMUP, COSINE, epochs=2, save_at=8)
    resumed = train(NO_WARMUP, COSINE, epochs=4, rate=0.1, load=tmp_path / "8.pth")
    assert resumed.by_epoch() == pytest.approx([0.05 * (1 + math.cos(math.pi * e / 10)) for e in (2, 3)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"WARMUP_EPOCHS": -1},
        {"WARMUP_START_LR": -0.1},
        {"WARMUP_FUNC": "cosine"},
        {"SET_BY_EPOCH": 3},
        {"WARMUP": 1},
    ],
)
def test_wrong_keys_are_config_errors(train, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        train(wrong)


def test_under_eval_hooks_it_changes_nothing(train):
    rates = train(NO_WARMUP, COSINE, epochs=2, eval_losses=[1, 1], EVAL_HOOKS=[{"NAME": "LrHook"}])
    assert rates.by_epoch() == pytest.approx([1, 0.975528], abs=1e-6)


def test_a_changed_learning_rate_scales_what_a_scheduler_of_whole_steps_came_to(train, tmp_path):
    train(NO_WARMUP, {"NAME": "LrTestFading"}, epochs=2, save_at=8)
    resumed = train(NO_WARMUP, {"NAME": "LrTestFading"}, epochs=4, rate=0.1, load=tmp_path / "8.pth")
    assert resumed.by_epoch() == pytest.approx([0.0125, 0.0015625])


def test_plateau_acts_in_mid_epoch_after_an_eval_there(train):
    rates = train(
        NO_WARMUP,
        PLATEAU,
        batches=100,
        epochs=-1,
        eval_losses=[1, 1, 1, 0.5],
        MAX_STEPS=8,
        EVAL_INTERVAL=2,
    )
    assert rates.first == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])
