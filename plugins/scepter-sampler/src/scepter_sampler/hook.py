"""DistSamplerHook: a new order each epoch from samplers that wait to be told which epoch it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scepter_core import BaseSolver, Hook, HookConfig


class DistSamplerHook(Hook):
    """Calls `set_epoch(epoch - 1)` on the training data's sampler before each epoch, in a resumed run too."""

    role = "sampler"

    class Config(HookConfig):
        """The keys of DistSamplerHook."""

        priority: int = 400

    def before_epoch(self, solver: BaseSolver) -> None:
        """The order of the epoch whose batches come next."""
        if not solver.is_train_mode:
            return
        # Resumed just behind an epoch's last iteration: nothing of it is left, what comes is the next one of the pass.
        behind_it = 0 < solver.epoch_max_iter <= solver.iter
        _set_epoch(solver, solver.epoch if behind_it else solver.epoch - 1)

    def after_iter(self, solver: BaseSolver) -> None:
        """NUM_FOLDS: the epochs within a pass have no event of their own; the next one follows this iteration."""
        if solver.is_last_iter and solver.is_train_mode and _pass_goes_on(solver):
            _set_epoch(solver, solver.epoch)


def samplers_of(data: Any) -> Iterator[Any]:
    """What gives `data` its order and can be told the epoch, the innermost first.

    Looks at `sampler` and `batch_sampler` of the data (a loader), and at those of what it finds there.
    """
    yield from _walk(data, set())


def _walk(thing: Any, seen: set[int]) -> Iterator[Any]:
    seen.add(id(thing))
    for name in ("sampler", "batch_sampler"):
        inner = getattr(thing, name, None)
        if inner is not None and id(inner) not in seen:
            yield from _walk(inner, seen)
            if callable(getattr(inner, "set_epoch", None)):
                yield inner


def _set_epoch(solver: BaseSolver, number: int) -> None:
    for sampler in samplers_of(solver.datas.get("train")):
        sampler.set_epoch(number)


def _pass_goes_on(solver: BaseSolver) -> bool:
    """Whether another epoch of the same pass follows the present one."""
    ends_pass = solver.epoch % solver.num_folds == 0 or 0 < solver.max_epochs <= solver.epoch
    return not (ends_pass or 0 < solver.max_steps <= solver.train_steps)
