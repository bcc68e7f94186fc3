"""The outputs of the iterations since the last line, kept where they were computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scepter_core import as_scalar

FOLD = 64  # steps whose values are kept singly before they become a sum, so that a long window stays small


class Reading(NamedTuple):
    """The last iteration's values and the means, by name, and the samples that they are of."""

    now: dict[str, float]
    means: dict[str, float]
    samples: int


def alone(value: Any) -> list[Any]:
    """What a single process gathers."""
    return [value]


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

    def read(self, gather: Callable[[Any], list[Any]] = alone) -> Reading:
        """What the window holds, over all processes; every one has to ask.

        Args:
            gather: from what this process has to a list of what all have.
        """
        now, sums = self._read_sums()
        told = gather((now, self._weight, sums, self._weights, self.samples))
        last_sums, last_weights = add_up(({name: value * weight for name, value in values.items()},
                                          dict.fromkeys(values, weight)) for values, weight, *_ in told)
        if len(told) == 1:  # not through a product and a quotient
            last_sums, last_weights = now, dict.fromkeys(now, 1)
        all_sums, all_weights = add_up((some, weights) for _, _, some, weights, _ in told)
        return Reading(
            {name: value / last_weights[name] for name, value in last_sums.items()},
            {name: value / all_weights[name] for name, value in all_sums.items()},
            sum(samples for *_, samples in told),
        )

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

    def load_state_dict(self, *states: Mapping[str, Any]) -> None:
        """Go on with the windows that `state_dict` gave, in one process or several."""
        self.clear()
        first = states[0]
        self.steps, self.samples = first["steps"], sum(state["samples"] for state in states)
        self.data_seconds, self.seconds = first["data_seconds"], first["seconds"]
        self._number_sums, self._weights = add_up((state["sums"], state["weights"]) for state in states)
        self._now = dict(first["now"])

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
