"""What a schedule answers at a position, beside torch's own stepping."""

from __future__ import annotations

import inspect
import math
import warnings

import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR

from scepter_lr.schedule import ByPosition, Plateau, Stepwise, is_function_of_position, make_schedule

ARGUMENTS = {
    "LambdaLR": {"lr_lambda": lambda position: 0.9**position},
    "MultiplicativeLR": {"lr_lambda": lambda position: 0.9},
    "StepLR": {"step_size": 3},
    "MultiStepLR": {"milestones": [2, 5, 5, 9]},
    "ConstantLR": {"total_iters": 4},
    "LinearLR": {"total_iters": 6},
    "ExponentialLR": {"gamma": 0.8},
    "PolynomialLR": {"total_iters": 15, "power": 2.0},
    "CosineAnnealingLR": {"T_max": 7, "eta_min": 0.01},
    "CosineAnnealingWarmRestarts": {"T_0": 3, "T_mult": 3},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 4, "mode": "triangular2"},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 20},
}
COMPOSED = {"SequentialLR", "ChainedScheduler"}
STEPWISE = {"MultiplicativeLR", "SWALR"} | COMPOSED
PUBLIC = {
    name: kind
    for name, kind in vars(lr_scheduler).items()
    if inspect.isclass(kind)
    and issubclass(kind, lr_scheduler.LRScheduler)
    and kind is not lr_scheduler.LRScheduler
    and not name.startswith("_")
    and name != "ReduceLROnPlateau"
}


def make_optimizer():
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(1))]},
        {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.05},
    ]
    return torch.optim.SGD(groups, lr=0.5, momentum=0.9)


def build(name, optimizer):
    if name == "SequentialLR":
        parts = [build("LinearLR", optimizer), build("StepLR", optimizer)]
        return lr_scheduler.SequentialLR(optimizer, parts, milestones=[6])
    if name == "ChainedScheduler":
        return lr_scheduler.ChainedScheduler(
            [build("ConstantLR", optimizer), build("ExponentialLR", optimizer)]
        )
    if name == "SWALR":
        return SWALR(optimizer, swa_lr=0.02, anneal_epochs=5)
    return PUBLIC[name](optimizer, **ARGUMENTS[name])


def settings(optimizer):
    return [(group["lr"], group["momentum"]) for group in optimizer.param_groups]


def stepped(name, count):
    """Rates and momenta of both groups, as torch's documentation has one step: optimizer first, scheduler then."""
    optimizer = make_optimizer()
    scheduler = build(name, optimizer)
    seen = []
    for _ in range(count):
        seen.append(settings(optimizer))
        optimizer.step()
        scheduler.step()
    return seen


def flat(rows):
    return [number for row in rows for group in row for number in group]


@pytest.mark.parametrize("name", sorted({*PUBLIC, "SWALR"}))
def test_every_public_scheduler_is_as_when_it_is_stepped(name):
    optimizer = make_optimizer()
    schedule = make_schedule(optimizer, build(name, optimizer))
    assert isinstance(schedule, Stepwise if name in STEPWISE else ByPosition)
    seen = []
    with warnings.catch_warnings():  # nothing that torch says about the order of steps comes through
        warnings.simplefilter("error")
        for position in range(20):
            schedule.put(schedule.rates(position))
            seen.append(settings(optimizer))
    assert flat(seen) == pytest.approx(flat(stepped(name, 20)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", sorted({*PUBLIC, "SWALR"}))
def test_looking_ahead_leaves_no_trace(name):
    optimizer = make_optimizer()
    schedule = make_schedule(optimizer, build(name, optimizer))
    before = settings(optimizer)
    ahead = schedule.ahead(9)
    assert settings(optimizer) == before
    seen = []
    for position in range(12):
        schedule.put(schedule.rates(position))
        seen.append(settings(optimizer))
    assert flat(seen) == pytest.approx(flat(stepped(name, 12)), rel=1e-9, abs=1e-12)
    assert ahead == pytest.approx([rate for rate, _ in seen[9]])


@pytest.mark.parametrize("name", sorted({*PUBLIC, "SWALR"} - STEPWISE))
def test_any_order_of_positions_gives_the_same(name):
    optimizer = make_optimizer()
    schedule = make_schedule(optimizer, build(name, optimizer))
    late, early = schedule.rates(11), schedule.rates(4)
    reference = stepped(name, 12)
    assert late == pytest.approx([rate for rate, _ in reference[11]], rel=1e-9, abs=1e-12)
    assert early == pytest.approx([rate for rate, _ in reference[4]], rel=1e-9, abs=1e-12)


def test_a_fraction_of_an_epoch_is_exact():
    optimizer = make_optimizer()
    schedule = make_schedule(optimizer, lr_scheduler.CosineAnnealingLR(optimizer, T_max=4))
    assert schedule.rates(1.5) == pytest.approx(
        [0.25 * (1 + math.cos(math.pi * 1.5 / 4)), 0.025 * (1 + math.cos(math.pi * 1.5 / 4))]
    )


@pytest.mark.parametrize(
    ("t_mult", "position", "cycle"),
    # With T_MULT 3 cycles of 3, 9, 27, 81, 243 begin at 0, 3, 12, 39, 120. Torch's logarithm puts 363 into the last.
    [(1, 2.5, (2.5, 3)), (1, 3, (0, 3)), (3, 12, (0, 27)), (3, 242.5, (122.5, 243)), (3, 363, (0, 729))],
)
def test_warm_restarts_begin_anew_at_their_borders(t_mult, position, cycle):
    optimizer = make_optimizer()
    scheduler = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3, T_mult=t_mult)
    expected = 0.25 * (1 + math.cos(math.pi * cycle[0] / cycle[1]))
    assert make_schedule(optimizer, scheduler).rates(position)[0] == pytest.approx(expected)


def test_one_cycle_keeps_its_last_rate():
    optimizer = make_optimizer()
    schedule = make_schedule(optimizer, build("OneCycleLR", optimizer))
    assert schedule.rates(19) == schedule.rates(20) == schedule.rates(500) == pytest.approx([4e-6, 4e-6])


def test_a_subclass_with_a_rule_of_its_own_is_not_taken_for_its_base():
    class Halved(lr_scheduler.StepLR):
        def get_lr(self):
            return [group["lr"] / 2 for group in self.optimizer.param_groups]

    class Same(lr_scheduler.StepLR):
        pass

    class OddLambda(lr_scheduler.LambdaLR):
        def get_lr(self):
            return [1.0 for _ in self.base_lrs]

    assert not is_function_of_position(Halved)
    assert is_function_of_position(Same)
    assert not is_function_of_position(OddLambda)


def test_a_rate_that_is_a_tensor_stays_that_tensor():
    parameter = torch.nn.Parameter(torch.zeros(1))
    rate = torch.tensor(0.5)
    optimizer = torch.optim.SGD([parameter], lr=rate, foreach=False)
    held = optimizer.param_groups[0]["lr"]
    schedule = make_schedule(optimizer, lr_scheduler.StepLR(optimizer, step_size=1))
    schedule.put(schedule.rates(2))
    assert optimizer.param_groups[0]["lr"] is held
    assert held.item() == pytest.approx(0.005)


@pytest.mark.parametrize("name", sorted(STEPWISE))
def test_the_state_of_a_stepwise_schedule_goes_on_where_it_was(name):
    reference = stepped(name, 12)
    optimizer = make_optimizer()
    scheduler = build(name, optimizer)
    schedule = make_schedule(optimizer, scheduler)
    schedule.rates(5)
    schedule.put([9.0, 9.0])  # as a warm-up does
    saved = schedule.state_dict(), scheduler.state_dict()

    again = make_optimizer()
    other = build(name, again)
    other.load_state_dict(saved[1])
    resumed = make_schedule(again, other)
    resumed.load_state_dict(saved[0])
    assert resumed.rates(5) == pytest.approx([rate for rate, _ in reference[5]])
    assert resumed.rates(11) == pytest.approx([rate for rate, _ in reference[11]])


def test_plateau_keeps_its_rates_apart_from_those_in_force():
    optimizer = make_optimizer()
    schedule = make_schedule(optimizer, lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0))
    assert isinstance(schedule, Plateau)
    schedule.put([7.0, 8.0])
    schedule.observe(1.0)
    schedule.observe(1.0)
    assert schedule.in_force() == [7.0, 8.0]
    assert schedule.rates(0) == pytest.approx([0.05, 0.005])
