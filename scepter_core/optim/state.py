"""Optimizer and scheduler in a checkpoint: it says what was reached; what is asked for, the configuration says."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

# What a run moves in torch's schedulers; the rest of their state repeats the configuration.
_MOVED = (
    *("last_epoch", "_step_count", "_last_lr", "_is_initial"),
    *("best", "num_bad_epochs", "cooldown_counter"),  # ReduceLROnPlateau
    *("T_cur", "T_i"),  # CosineAnnealingWarmRestarts
)

# Options of torch's optimizers whose step expects a state that one without them has not, and what that is shaped like.
_STATE_OF_OPTION = {
    "amsgrad": ("max_exp_avg_sq", "exp_avg_sq"),
    "centered": ("grad_avg", "square_avg"),
    "momentum": ("momentum_buffer", "square_avg"),  # RMSprop's: SGD makes its own
}


def configured_options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The options of every parameter group as the configuration gave them: taken once, right after building."""
    return [
        {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]


def optimizer_state(optimizer: Optimizer, configured: list[dict[str, Any]]) -> dict[str, Any]:
    """`optimizer.state_dict()`, with the configured options beside the present ones."""
    return {**optimizer.state_dict(), "configured": configured}


def load_optimizer(optimizer: Optimizer, state: Mapping[str, Any], configured: list[dict[str, Any]]) -> list[str]:
    """Load `state`; an option that the configuration changed since keeps its new value.

    Returns:
        one line for each such option, for the log.
    """
    saved = state.get("configured") or configured
    groups, notices = [], []
    for number, (group, before, now) in enumerate(zip(state["param_groups"], saved, configured, strict=True)):
        changed = {name: value for name, value in now.items() if name in before and before[name] != value}
        # Before loading: where torch puts its state follows from the options (FUSED, for one). Options that an older
        # torch did not save are the configuration's too.
        groups.append(copy.deepcopy(now) | dict(group) | copy.deepcopy(changed))
        notices += [
            f"parameter group {number}: {name} was {before[name]}, is now {value}" for name, value in changed.items()
        ]
    optimizer.load_state_dict({"state": state["state"], "param_groups": groups})
    _begin_state_of_new_options(optimizer)
    return notices


def _begin_state_of_new_options(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for option, (name, like) in _STATE_OF_OPTION.items():
            for parameter in group["params"] if group.get(option) else ():
                values = optimizer.state.get(parameter, {})
                if like in values and name not in values:
                    values[name] = torch.zeros_like(values[like])


def scheduler_state(scheduler: LRScheduler) -> dict[str, Any]:
    """Where the scheduler stands, and the numbers that it was given, without its functions and its optimizer."""
    if not _is_known(scheduler):
        return scheduler.state_dict()
    state = {name: value for name, value in vars(scheduler).items() if _is_plain(value)}
    if hasattr(scheduler, "_schedulers"):
        state["_schedulers"] = [scheduler_state(child) for child in scheduler._schedulers]
    return state


def _is_known(scheduler: LRScheduler) -> bool:
    """Whether it is torch's, or one of `annealing`: what its attributes mean is known."""
    return type(scheduler).__module__.startswith(("torch.optim", "scepter_core.optim"))


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def load_scheduler(scheduler: LRScheduler, state: Mapping[str, Any]) -> list[str]:
    """Load where the scheduler stood; its own numbers (T_MAX, GAMMA, …) stay the configuration's.

    Returns:
        one line for each number that differs from the checkpoint's, for the log.
    """
    if not _is_known(scheduler):
        scheduler.load_state_dict(dict(state))  # a class that users bring knows its own state
        return []
    given = set(inspect.signature(type(scheduler)).parameters) - {"last_epoch"}
    differing = [
        f"LR_SCHEDULER.{name.upper()} was {state[name]}, is now {getattr(scheduler, name)}"
        for name in sorted(given & state.keys())
        if isinstance(state[name], int | float | str) and getattr(scheduler, name, None) != state[name]
    ]
    vars(scheduler).update({name: state[name] for name in _MOVED if name in state})
    for child, saved in zip(getattr(scheduler, "_schedulers", ()), state.get("_schedulers", ()), strict=False):
        differing += load_scheduler(child, saved)
    return differing
