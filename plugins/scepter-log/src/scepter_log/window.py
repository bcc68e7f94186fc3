"""The outputs of the iterations since the last line, kept where they were computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from scepter_core import as_scalar

FOLD = 64  # steps whose values are kept singly before they become a sum, so that a long window stays small


class Window:
    """Weighted sums of every scalar output.

    Adding costs no device synchronisation; `read` costs one per device. Means weigh an iteration by its samples.

    Attributes:
        steps: iterations so far.
        samples: their samples.
        data_seconds: time that they waited for their batches.
        seconds: their time in all.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew, with nothing."""
        self.steps = 0
        self.samples = 0
        self.data_seconds = 0.0
        self.seconds = 0.0
        self._weight = 0  # of each value in _recent
        self._recent: dict[str, list[Tensor]] = {}
        self._sums: dict[str, Tensor] = {}
        self._number_sums: dict[str, float] = {}
        self._weights: dict[str, int] = {}
        self._now: dict[str, Tensor | float] = {}

    def add(self, outputs: Mapping[str, Any], samples: int) -> None:
        """Take the scalars among the outputs of one iteration over `samples` samples; what is no scalar is ignored."""
        weight = samples or 1
        if weight != self._weight or self.steps % FOLD == 0:
            self._fold()
            self._weight = weight
        self.steps += 1
        self.samples += samples
        now: dict[str, Tensor | float] = {}
        self._now, recent, weights = now, self._recent, self._weights
        for name, value in outputs.items():
            scalar = as_scalar(value)
            if scalar is None:
                continue
            now[name] = scalar
            if not isinstance(scalar, Tensor):
                self._number_sums[name] = self._number_sums.get(name, 0.0) + scalar * weight
            elif name in recent:
                recent[name].append(scalar)
            else:
                recent[name] = [scalar]
            weights[name] = weights.get(name, 0) + weight

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        """The last iteration's values and the means, by name."""
        now, sums = self._read_sums()
        return now, {name: value / self._weights[name] for name, value in sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """The window in plain numbers; reads the device."""
        now, sums = self._read_sums()
        return {
            "steps": self.steps,
            "samples": self.samples,
            "data_seconds": self.data_seconds,
            "seconds": self.seconds,
            "sums": sums,
            "weights": dict(self._weights),
            "now": now,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the window that `state_dict` gave."""
        self.clear()
        self.steps, self.samples = state["steps"], state["samples"]
        self.data_seconds, self.seconds = state["data_seconds"], state["seconds"]
        self._number_sums, self._weights = dict(state["sums"]), dict(state["weights"])
        self._now = dict(state["now"])

    def _read_sums(self) -> tuple[dict[str, float], dict[str, float]]:
        self._fold()
        held: dict[tuple[str, str], Tensor] = {("sum", name): value for name, value in self._sums.items()}
        held.update({("now", name): value for name, value in self._now.items() if isinstance(value, Tensor)})
        read = _to_floats(held)
        now = {
            name: read[("now", name)] if isinstance(value, Tensor) else value
            for name, value in self._now.items()
        }
        sums = {
            name: read.get(("sum", name), 0.0) + self._number_sums.get(name, 0.0) for name in self._weights
        }
        return now, sums

    def _fold(self) -> None:
        for name, values in self._recent.items():
            part = torch.stack(values).to(_widest(values[0])).sum() * self._weight
            self._sums[name] = self._sums[name] + part if name in self._sums else part
        self._recent.clear()


def _widest(value: Tensor) -> torch.dtype:
    return torch.float32 if value.device.type == "mps" else torch.float64  # MPS has no float64


def _to_floats(tensors: Mapping[Any, Tensor]) -> dict[Any, float]:
    """The tensors' values, read together: one transfer a device."""
    by_device: dict[torch.device, list[Any]] = {}
    for key, value in tensors.items():
        by_device.setdefault(value.device, []).append(key)
    found: dict[Any, float] = {}
    for keys in by_device.values():
        values = torch.stack([tensors[key].to(_widest(tensors[key])) for key in keys]).tolist()
        found.update(zip(keys, values, strict=True))
    return found
