"""What a scheduler says at a position.

A schedule answers the rate of every parameter group at a position, a number of epochs or of updates. Where the rate is
a function of the position (`ByPosition`), any position can be asked, fractions included, and nothing has to be counted
up. The other schedulers (`Stepwise`) are walked there with `scheduler.step()`, forward only and whole steps only.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    LambdaLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
)

# Their get_lr() reads last_epoch and no current rate; CosineAnnealingWarmRestarts reads T_cur and T_i, set here.
_FUNCTIONS_OF_LAST_EPOCH = (LambdaLR, OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts)
Rates = list[float]


def is_plateau(kind: object) -> bool:
    """Whether `kind` is ReduceLROnPlateau, which follows a metric and no position."""
    return isinstance(kind, type) and issubclass(kind, ReduceLROnPlateau)


def is_function_of_position(kind: type) -> bool:
    """Whether the rates of scheduler class `kind` are a function of the position alone.

    A subclass that brings its own `get_lr` or `step` is not taken for its base: what it inherits says nothing of it.
    """
    rule = _definer(kind, "get_lr")
    if rule not in _FUNCTIONS_OF_LAST_EPOCH:
        rule = _definer(kind, "_get_closed_form_lr")
    return rule is not None and all(
        issubclass(rule, _definer(kind, name) or object) for name in ("get_lr", "step")
    )


def make_schedule(optimizer: Optimizer, scheduler: Any | None) -> Schedule:
    """The schedule of a run: what its scheduler says, or the constant base rates where there is none."""
    if scheduler is None:
        return Schedule(optimizer)
    if isinstance(scheduler, ReduceLROnPlateau):
        return Plateau(optimizer, scheduler)
    kind = ByPosition if is_function_of_position(type(scheduler)) else Stepwise
    return kind(optimizer, scheduler)


class End(NamedTuple):
    """Where a schedule is through: its key and value, the last position that is its own, and what comes after it."""

    key: str
    value: int
    last: float
    after: str


class Schedule:
    """The constant schedule, and the interface of the others."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])

    def put(self, rates: Sequence[float]) -> None:
        """Put one rate into each parameter group; a rate that is a tensor stays the same tensor."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def in_force(self) -> Rates:
        """The rate in each parameter group now."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def base_rates(self) -> Rates:
        """Each group's rate before any schedule."""
        return [float(group["initial_lr"]) for group in self.optimizer.param_groups]

    def end(self, *, whole: bool) -> End | None:
        """Where the schedule is through, asked at whole positions only or also at fractions; None: it has no end."""
        return None

    def rates(self, position: float) -> Rates:
        """The groups' rates at `position`, where the schedule (its momentum too) then stands."""
        return self.base_rates()

    def ahead(self, position: float) -> Rates:
        """The groups' rates at `position`, later or the same, leaving no trace."""
        return self.base_rates()

    def state_dict(self) -> dict[str, Any]:
        """What the scheduler's own state does not hold, in plain numbers."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what `state_dict` gave."""

    @contextmanager
    def _no_trace(self) -> Iterator[None]:
        """Put the groups' rates and momenta back as they were."""
        rates, groups = self.in_force(), self.optimizer.param_groups
        options: list[dict[str, Any]] = [
            {key: group[key] for key in ("momentum", "betas") if key in group} for group in groups
        ]
        try:
            yield
        finally:
            self.put(rates)
            for group, saved in zip(groups, options, strict=True):
                group.update(saved)


class ByPosition(Schedule):
    """A scheduler whose rates are a function of the position."""

    def __init__(self, optimizer: Optimizer, scheduler: Any) -> None:
        super().__init__(optimizer)
        self.scheduler = scheduler
        self._closed_form = getattr(scheduler, "_get_closed_form_lr", None)
        self._last = scheduler.total_steps - 1 if isinstance(scheduler, OneCycleLR) else math.inf
        self._restarts = isinstance(scheduler, CosineAnnealingWarmRestarts)

    def end(self, *, whole: bool) -> End | None:
        scheduler = self.scheduler
        if isinstance(scheduler, CosineAnnealingLR):
            return End("T_MAX", scheduler.T_max, scheduler.T_max, "the rate rises again")
        if isinstance(scheduler, PolynomialLR):
            key = "END_EPOCH" if hasattr(scheduler, "end_epoch") else "TOTAL_ITERS"  # LinoPolyLR's name of it
            return End(key, scheduler.total_iters, scheduler.total_iters, "the rate is 0")
        if getattr(scheduler, "decay_mode", "none") != "none":  # StepAnnealingLR
            return End("TOTAL_STEPS", scheduler.total_steps, scheduler.total_steps, "the lowest rate stands")
        if isinstance(scheduler, OneCycleLR):
            last = scheduler.total_steps - 1 if whole else scheduler.total_steps
            return End("TOTAL_STEPS", scheduler.total_steps, last, "the last rate stands")
        return None

    def base_rates(self) -> Rates:
        return [float(rate) for rate in self.scheduler.base_lrs]

    def rates(self, position: float) -> Rates:
        scheduler = self.scheduler
        # OneCycleLR's last rate stands: torch's formula rises again beyond it.
        scheduler.last_epoch = position if position <= self._last else self._last
        if self._restarts:
            _enter_cycle(scheduler, position)
        if self._closed_form is not None:
            rates = self._closed_form()
        else:
            with _within_step(scheduler):
                rates = scheduler.get_lr()
        scheduler._last_lr = [float(rate) for rate in rates]
        return list(scheduler._last_lr)

    def ahead(self, position: float) -> Rates:
        with self._no_trace():
            before = {
                key: value
                for key, value in vars(self.scheduler).items()
                if key in ("last_epoch", "T_cur", "T_i", "_last_lr")
            }
            try:
                return self.rates(position)
            finally:
                vars(self.scheduler).update(before)


class _OwnRates(Schedule):
    """A scheduler that makes its next rates from its last; they are kept apart from those that a warm-up sets."""

    def __init__(self, optimizer: Optimizer, scheduler: Any) -> None:
        super().__init__(optimizer)
        self.scheduler = scheduler
        last = getattr(scheduler, "_last_lr", None)
        self._own = [float(rate) for rate in last] if last else self.in_force()

    def state_dict(self) -> dict[str, Any]:
        return {"rates": list(self._own), "base_rates": self.base_rates()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if len(state.get("rates", ())) != len(self._own):
            return
        then, now = state["base_rates"], self.base_rates()
        self._own = [
            rate
            if before == after or not before
            else rate * after / before  # LEARNING_RATE changed at the resume
            for rate, before, after in zip(state["rates"], then, now, strict=True)
        ]


class Stepwise(_OwnRates):
    """A scheduler that only knows its next step: it is walked forward, a whole step at a time."""

    def __init__(self, optimizer: Optimizer, scheduler: Any) -> None:
        super().__init__(optimizer, scheduler)
        self._position = int(getattr(scheduler, "last_epoch", 0))

    def rates(self, position: float) -> Rates:
        while self._position < math.floor(position):
            self.put(self._own)
            self._step()
            self._position += 1
            self._own = self.in_force()
        return list(self._own)

    def ahead(self, position: float) -> Rates:
        with self._no_trace():
            state = copy.deepcopy(self.scheduler.state_dict())
            here, own = self._position, self._own
            try:
                return self.rates(position)
            finally:
                self.scheduler.load_state_dict(state)
                self._position, self._own = here, own

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._position = state.get("position", self._position)

    def _step(self) -> None:
        if not _is_fresh(self.scheduler):
            self.scheduler.step()
            return
        with warnings.catch_warnings():
            # At a scheduler's first step torch asks whether the optimizer has stepped *in this process*, which says
            # nothing after a resume or a skipped update.
            warnings.filterwarnings(
                "ignore", r"(Detected call of|Seems like) `(lr_scheduler|optimizer)\.step"
            )
            self.scheduler.step()


class Plateau(_OwnRates):
    """ReduceLROnPlateau: its rates change by what it observes, wherever the run stands."""

    def rates(self, position: float) -> Rates:
        return list(self._own)

    def ahead(self, position: float) -> Rates:
        return list(self._own)

    def observe(self, value: float) -> None:
        """Show it the metric; the rates in the optimizer stay as they are."""
        with self._no_trace():
            self.put(self._own)
            self.scheduler.step(value)
            self._own = self.in_force()


def _definer(kind: type, name: str) -> type | None:
    return next((base for base in kind.__mro__ if name in vars(base)), None)


def _is_fresh(scheduler: Any) -> bool:
    """Whether the scheduler, or one that it is made of, has its first step before it."""
    members = getattr(scheduler, "_schedulers", ())
    return getattr(scheduler, "_step_count", 0) == 1 or any(_is_fresh(member) for member in members)


def _enter_cycle(scheduler: CosineAnnealingWarmRestarts, position: float) -> None:
    """Set the restart cycle that `position` lies in. Torch's own way takes a logarithm, which misses some borders."""
    begun, length = 0.0, scheduler.T_0
    if scheduler.T_mult == 1:
        begun = position - position % length
    else:
        while position - begun >= length:
            begun += length
            length *= scheduler.T_mult
    scheduler.T_cur, scheduler.T_i = position - begun, length  # type: ignore[assignment]  # torch says int, takes both
    scheduler.last_epoch = math.floor(position)


@contextmanager
def _within_step(scheduler: Any) -> Iterator[None]:
    """What torch sets while it calls get_lr itself; without it, get_lr warns."""
    scheduler._get_lr_called_within_step = True
    try:
        yield
    finally:
        scheduler._get_lr_called_within_step = False
