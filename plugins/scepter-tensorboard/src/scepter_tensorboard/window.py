"""The scalar outputs of the iterations since the last record, kept where they were computed."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

FOLD = 64  # steps whose values are held singly before they become a sum, so that a long window stays small

_NO_NUMBERS = frozenset((torch.bool, torch.complex32, torch.complex64, torch.complex128))


def add_up(parts: Iterable[tuple[Mapping[str, float], Mapping[str, int]]]) -> tuple[dict[str, float], dict[str, int]]:
    """The sums and weights of several processes as those of one."""
    sums: dict[str, float] = {}
    weights: dict[str, int] = {}
    for some_sums, some_weights in parts:
        for name, value in some_sums.items():
            sums[name] = sums[name] + value if name in sums else value
            weights[name] = weights.get(name, 0) + some_weights[name]
    return sums, weights


class Window:
    """Sums of the scalar outputs, each iteration weighed by its samples.

    Adding costs no device synchronisation; `means` costs one per device.

    Args:
        skip: called with the name and the value of each output that is no scalar.
    """

    def __init__(self, skip: Callable[[str, Any], None]) -> None:
        self._skip = skip
        self.clear()

    def clear(self) -> None:
        """Begin anew, with nothing."""
        self.steps = 0
        self._weight = 0  # of every value in _held
        self._held: dict[str, list[Tensor]] = {}
        self._sums: dict[str, Tensor] = {}
        self._number_sums: dict[str, float] = {}
        self._weights: dict[str, int] = {}

    def add(self, outputs: Mapping[str, Any], samples: int) -> None:
        """Take the scalars among the outputs of one iteration over `samples` samples."""
        weight = samples or 1
        if weight != self._weight or self.steps % FOLD == 0:
            self._fold()
            self._weight = weight
        self.steps += 1
        for name, value in outputs.items():
            if isinstance(value, Tensor) and not value.ndim and value.dtype not in _NO_NUMBERS:
                # One without a graph may be a buffer that the model changes in place at the next step.
                kept = value.detach() if value.requires_grad else value.clone()
                self._held.setdefault(name, []).append(kept)
            elif isinstance(value, numbers.Real) and not isinstance(value, bool):
                self._number_sums[name] = self._number_sums.get(name, 0.0) + float(value) * weight
            else:
                self._skip(name, value)
                continue
            self._weights[name] = self._weights.get(name, 0) + weight

    def means(self, gather: Callable[[Any], list[Any]]) -> dict[str, float]:
        """By name, the mean over the iterations that gave it, of all processes; every one has to ask.

        Args:
            gather: from what this process has to a list of what all have.
        """
        sums, weights = add_up(gather((self._read(), self._weights)))
        return {name: value / weights[name] for name, value in sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """The window in plain numbers; reads the device."""
        return {"steps": self.steps, "sums": self._read(), "weights": dict(self._weights)}

    def load_state_dict(self, *states: Mapping[str, Any]) -> None:
        """Go on with the windows that `state_dict` gave, in one process or several."""
        self.clear()
        self.steps = states[0]["steps"]
        self._number_sums, self._weights = add_up((state["sums"], state["weights"]) for state in states)

    def _read(self) -> dict[str, float]:
        """The sums, read together: one transfer a device."""
        self._fold()
        by_device: dict[torch.device, list[str]] = {}
        for name, value in self._sums.items():
            by_device.setdefault(value.device, []).append(name)
        read: dict[str, float] = {}
        for names in by_device.values():
            values = torch.stack([self._sums[name] for name in names]).tolist()
            read.update(zip(names, values, strict=True))
        return {name: read.get(name, 0.0) + self._number_sums.get(name, 0.0) for name in self._weights}

    def _fold(self) -> None:
        for name, values in self._held.items():
            wide = torch.float32 if values[0].device.type == "mps" else torch.float64  # MPS has no float64
            part = torch.stack(values).to(wide).sum() * self._weight
            self._sums[name] = self._sums[name] + part if name in self._sums else part
        self._held.clear()
