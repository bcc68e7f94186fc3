"""Means of a step's scalar outputs, weighted by batch size, without waiting for the device."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import torch

_T = TypeVar("_T")

_FOLD_EVERY = 64  # steps whose values are held before they are summed on their device


def as_scalar(value: Any) -> torch.Tensor | float | None:
    """What counts as a scalar output: `value` as a 0-dim tensor without a graph, or as a float; None where it is none.

    Scalars are real tensors without axes and real numbers, numpy's among them; booleans and text are not. (A tensor of
    shape [1] may be a value for each sample of a batch of one.)
    """
    if isinstance(value, torch.Tensor):
        if value.ndim or value.is_complex() or value.dtype == torch.bool:
            return None
        return value.detach()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return float(value)


class Gather(Protocol):
    """From one process's value to those of all."""

    def __call__(self, value: _T, /) -> list[_T]:
        """The values of all processes, by rank, in each of them."""


def alone(value: _T, /) -> list[_T]:
    """What a single process gathers."""
    return [value]


def add_up(parts: Iterable[tuple[Mapping[str, float], Mapping[str, float]]]) -> tuple[dict[str, float], dict[str, float]]:
    """The sums and weights of several processes as those of one."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for some_sums, some_weights in parts:
        for name, total in some_sums.items():
            sums[name] = sums[name] + total if name in sums else total
            weights[name] = weights.get(name, 0.0) + some_weights[name]
    return sums, weights


class WeightedMeans:
    """Sums `value * weight` and `weight` by name; a name counts the steps in which it is there.

    Values stay on their device until `compute`. Sums are double precision where the device has it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._sums: dict[str, torch.Tensor | float] = {}
        self._weights: dict[str, float] = {}
        self._held: dict[str, list[torch.Tensor]] = {}
        self._held_weights: dict[str, list[float]] = {}

    def add(self, outputs: Mapping[str, Any], weight: float) -> None:
        """Take in the scalars among `outputs`, each counting `weight` (samples); the rest is passed over."""
        for name, output in outputs.items():
            value = as_scalar(output)
            if value is None:
                continue
            if isinstance(value, float):
                self._sums[name] = self._sums.get(name, 0.0) + value * weight
                self._weights[name] = self._weights.get(name, 0.0) + weight
                continue
            held = self._held.setdefault(name, [])
            held.append(value)
            self._held_weights.setdefault(name, []).append(weight)
            if len(held) >= _FOLD_EVERY:
                self._fold(name)

    def _fold(self, name: str) -> None:
        values, weights = self._held.pop(name), self._held_weights.pop(name)
        stacked = torch.stack(values)
        kind = torch.float32 if stacked.device.type == "mps" else torch.float64
        factors = torch.tensor(weights, dtype=kind).to(stacked.device, non_blocking=True)
        total = torch.dot(stacked.to(kind), factors)
        self._sums[name] = self._sums.get(name, 0.0) + total
        self._weights[name] = self._weights.get(name, 0.0) + sum(weights)

    def _fold_all(self) -> None:
        for name in list(self._held):
            self._fold(name)

    def compute(self, gather: Gather = alone) -> dict[str, float]:
        """The means by name, in the order in which the names first came. Waits for the device once.

        Args:
            gather: brings together what several processes have; the means are then over all of it.
        """
        sums, weights = add_up(gather((self.state_dict()["sums"], self._weights)))
        return {name: total / weights[name] for name, total in sums.items() if weights[name] > 0}

    def _fetched(self) -> dict[str, float]:
        """The sums as numbers, all tensors among them in one transfer."""
        on_device = {name: total for name, total in self._sums.items() if isinstance(total, torch.Tensor)}
        numbers = dict(zip(on_device, _fetch(list(on_device.values())), strict=True))
        return {name: numbers[name] if name in numbers else float(total) for name, total in self._sums.items()}

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Sums and weights as numbers. Waits for the device."""
        self._fold_all()
        return {"sums": self._fetched(), "weights": dict(self._weights)}

    def load_state_dict(self, *states: Mapping[str, Mapping[str, float]]) -> None:
        """Put back what `state_dict` gave, in one process or several."""
        self.reset()
        sums, self._weights = add_up((state["sums"], state["weights"]) for state in states)
        self._sums = dict(sums)


def _fetch(values: list[torch.Tensor]) -> list[float]:
    if not values:
        return []
    device = values[0].device
    numbers: list[float] = torch.stack([value.to(device) for value in values]).tolist()
    return numbers
