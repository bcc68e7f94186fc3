"""Optimizers and learning-rate schedulers: every class of torch, by its own name."""

from scepter_core.optim.building import build_optimizer, build_scheduler
from scepter_core.optim.finding import find_optimizer, find_scheduler, optimizer_names, scheduler_names
from scepter_core.optim.state import load_optimizer, load_scheduler, optimizer_state, scheduler_state

__all__ = [
    "build_optimizer",
    "build_scheduler",
    "find_optimizer",
    "find_scheduler",
    "load_optimizer",
    "load_scheduler",
    "optimizer_names",
    "optimizer_state",
    "scheduler_names",
    "scheduler_state",
]
