"""Means of a step's scalar outputs, weighted by batch size, without waiting for the device."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import torch

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

    def compute(self) -> dict[str, float]:
        """The means by name, in the order in which the names first came. Waits for the device once."""
        self._fold_all()
        sums = self._fetched()
        return {name: total / self._weights[name] for name, total in sums.items() if self._weights[name] > 0}

    def _fetched(self) -> dict[str, float]:
        """The sums as numbers, all tensors among them in one transfer."""
        on_device = {name: total for name, total in self._sums.items() if isinstance(total, torch.Tensor)}
        numbers = dict(zip(on_device, _fetch(list(on_device.values())), strict=True))
        return {name: numbers[name] if name in numbers else float(total) for name, total in self._sums.items()}

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Sums and weights as numbers. Waits for the device."""
        self._fold_all()
        return {"sums": self._fetched(), "weights": dict(self._weights)}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Put back what `state_dict` gave."""
        self.reset()
        self._sums, self._weights = dict(state["sums"]), dict(state["weights"])


def _fetch(values: list[torch.Tensor]) -> list[float]:
    if not values:
        return []
    device = values[0].device
    numbers: list[float] = torch.stack([value.to(device) for value in values]).tolist()
    return numbers
