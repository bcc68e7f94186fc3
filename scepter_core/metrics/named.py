"""The METRICS of a configuration: built, fed by key, reset between epochs, and saved with the run."""

from __future__ import annotations

import copy
import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from scepter_core.errors import ConfigError, Problem, RunError
from scepter_core.metrics.means import Gather, alone, as_scalar
from scepter_core.metrics.merging import merged, parts_of, put
from scepter_core.registry import METRICS
from scepter_core.sections import MODES, MetricKeys

_TORCHMETRICS = (
    "torchmetrics.classification",
    "torchmetrics.regression",
    "torchmetrics.aggregation",
    "torchmetrics.clustering",
    "torchmetrics.nominal",
    "torchmetrics.retrieval",
    "torchmetrics.segmentation",
    "torchmetrics.image",
    "torchmetrics.detection",
    "torchmetrics.audio",
    "torchmetrics.text",
    "torchmetrics",  # last: it warns of names that moved
)


def find_metric(name: str) -> object | None:
    """The metric class called `name`: ours, or that of torchmetrics; None where there is none."""
    from torchmetrics import Metric

    from scepter_core.metrics.accuracy import AccuracyMetric

    if name == "AccuracyMetric":
        return AccuracyMetric
    for module in _TORCHMETRICS:
        found = getattr(importlib.import_module(module), name, None)
        if isinstance(found, type) and issubclass(found, Metric) and found is not Metric:
            return found
    return None


def metric_names() -> list[str]:
    """The names that `find_metric` knows."""
    import torchmetrics

    return ["AccuracyMetric", *(name for name in torchmetrics.__all__ if find_metric(name) is not None)]


class _Slot:
    """One entry of METRICS, with a metric of its own for each mode: an eval in mid-epoch must not mix with training."""

    def __init__(self, section: MetricKeys, metric: Any, device: torch.device) -> None:
        self.section = section
        self.name = section.log_name or _snake_case(section.name)
        self.named = section.log_name is not None
        if isinstance(metric, torch.nn.Module):
            metric = metric.to(device)
        for part in parts_of(metric):
            part.distributed_available_fn = _never  # states are joined here, those of an empty share too
        self.metrics: dict[str, Any] = {mode: copy.deepcopy(metric) for mode in MODES}
        self.updates = dict.fromkeys(MODES, 0)
        # What another number of processes had of an epoch before a resume: batches, and the states of the metric's parts.
        self.earlier: dict[str, list[tuple[int, list[Any]]]] = {mode: [] for mode in MODES}
        self.given_up = False  # in training: the entries are not there

    def applies(self, mode: str) -> bool:
        if self.section.modes is not None:
            return mode in self.section.modes
        return not (mode == "train" and self.given_up)


    def of_all(self, mode: str, gather: Gather) -> AbstractContextManager[int]:
        """While entered, the metric is that of all processes; gives the number of their batches."""
        metric, updates = self.metrics[mode], self.updates[mode]
        if parts_of(metric):
            return merged(metric, updates, gather, self.earlier[mode])
        return nullcontext(updates)  # of a single process: others were refused


class NamedMetrics:
    """All metrics of a run.

    Args:
        sections: the entries of METRICS.
        device: where their states live.
        logger: hears once when a metric has no use in training.
        world_size: processes that share the batches.

    Raises:
        ConfigError: two have one name; or one cannot be computed over several processes.
    """

    def __init__(
        self, sections: Sequence[MetricKeys], device: torch.device, logger: Any, world_size: int = 1
    ) -> None:
        self.logger = logger
        self._no_numbers: set[str] = set()  # names whose results are none, as was said
        self._slots = [
            _Slot(section, _build(section, f"SOLVER.METRICS[{place}]", logger), device)
            for place, section in enumerate(sections)
        ]
        names = [slot.name for slot in self._slots]
        problems = [
            Problem(
                f"two metrics are called {slot.name}",
                path=f"SOLVER.METRICS[{number}]",
                hint="give one of them a LOG_NAME of its own",
            )
            for number, slot in enumerate(self._slots)
            if slot.name in names[:number]
        ]
        problems += [
            Problem(
                f"{slot.section.name} cannot be computed over {world_size} processes",
                path=f"SOLVER.METRICS[{number}]",
                expected="a metric that derives from torchmetrics.Metric: its states can be joined",
            )
            for number, slot in enumerate(self._slots)
            if world_size > 1 and not parts_of(slot.metrics["eval"])
        ]
        if problems:
            raise ConfigError(problems)

    def reset(self, mode: str) -> None:
        """Begin an epoch of `mode`."""
        for slot in self._slots:
            slot.metrics[mode].reset()
            slot.updates[mode], slot.earlier[mode] = 0, []

    def update(self, mode: str, outputs: Mapping[str, Any], batch: Any) -> None:
        """Feed every metric of `mode` from the outputs, else from the batch."""
        for slot in self._slots:
            if not slot.applies(mode):
                continue
            values = [look_up(path, outputs, batch) for path in slot.section.keys]
            missing = [path for path, value in zip(slot.section.keys, values, strict=True) if value is None]
            if not missing:
                # Without their graph: a metric that keeps what it is given would keep every step's.
                values = [value.detach() if isinstance(value, torch.Tensor) else value for value in values]
                self._feed(slot, mode, values)
                slot.updates[mode] += 1
            elif mode == "train" and slot.section.modes is None:
                slot.given_up = True
                self.logger.info(
                    "metric %s is not computed in training: its outputs have no %s", slot.name, ", ".join(missing)
                )
            else:
                there = sorted({*outputs, *(batch if isinstance(batch, Mapping) else ())})
                raise RunError(
                    f"METRICS {slot.section.name}: {mode} has no {', '.join(missing)}; "
                    f"outputs and batch hold: {', '.join(there) or 'nothing'}"
                )

    def _feed(self, slot: _Slot, mode: str, values: Sequence[Any]) -> None:
        try:
            with torch.no_grad():
                slot.metrics[mode].update(*values)
        except Exception as error:  # of torchmetrics or a metric of the user's, over values that are none for it
            given = ", ".join(f"{key} ({_kind(value)})" for key, value in zip(slot.section.keys, values, strict=True))
            raise RunError(
                f"METRICS {slot.section.name} cannot take what {mode} gives it: {type(error).__name__}: {error}\n"
                f"    given: {given}"
            ) from error

    def compute(self, mode: str, gather: Gather = alone) -> dict[str, float]:
        """The metrics of the epoch of `mode`, by name; those that saw no batch are left out.

        Args:
            gather: brings together what several processes have.
        """
        results: dict[str, float] = {}
        for slot in self._slots:
            with slot.of_all(mode, gather) as updates:
                result = slot.metrics[mode].compute() if updates else None
            if updates == 0:
                continue
            named = {slot.name: result}
            if isinstance(result, Mapping):
                named = {f"{slot.name}_{key}" if slot.named else str(key): value for key, value in result.items()}
            for name, value in named.items():
                numbers = _numbers(name, value)
                results.update(numbers)
                if not numbers and name not in self._no_numbers:
                    self._no_numbers.add(name)
                    self.logger.warning(
                        "METRICS %s: %s is a %s and no number: it is left out", slot.section.name, name, type(value).__name__
                    )
        return results

    def state_dict(self) -> dict[str, Any]:
        """The states of an epoch that is under way, by metric and mode."""
        return {
            slot.name: {
                mode: {
                    "updates": slot.updates[mode],
                    "state": _state(slot.metrics[mode]),
                    "earlier": list(slot.earlier[mode]),
                }
                for mode in MODES
            }
            for slot in self._slots
        }

    def load_state_dict(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Put back what `state_dict` gave, in one process or several; a metric that was not there begins anew."""
        for slot in self._slots:
            for mode in MODES:
                saved = [state[slot.name][mode] for state in states if slot.name in state]
                slot.earlier[mode] = [(count, state) for one in saved for count, state in one.get("earlier", [])]
                if len(saved) == 1:
                    slot.updates[mode] = saved[0]["updates"]
                    _restore(slot.metrics[mode], saved[0])
                elif saved:
                    slot.metrics[mode].reset()
                    slot.updates[mode] = 0
                    slot.earlier[mode] += [(one["updates"], one["state"]) for one in saved if one["updates"]]


def _build(section: MetricKeys, path: str, logger: Any) -> Any:
    """The metric, whose `update` takes as many values as KEYS names."""
    metric = METRICS.build(section, logger=logger)
    signature = inspect.signature(metric.update)
    try:
        signature.bind(*section.keys)
    except TypeError:
        raise ConfigError(
            [
                Problem(
                    f"{section.name} takes other values than these",
                    path=f"{path}.KEYS",
                    expected=f"names for {', '.join(signature.parameters) or 'nothing'}",
                )
            ]
        ) from None
    return metric


def _kind(value: Any) -> str:
    """The type of a value, of a tensor with its shape."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {list(value.shape)}"
    return type(value).__name__


def _numbers(name: str, value: Any) -> dict[str, float]:
    """A metric's result as named numbers: one for a scalar, `name_0`, … for a vector, none for anything else."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.reshape(())
    if isinstance(value, torch.Tensor) and value.ndim:
        entries = value.flatten().tolist() if not value.is_complex() else []
        return {f"{name}_{place}": float(entry) for place, entry in enumerate(entries)}
    scalar = as_scalar(value)
    return {} if scalar is None else {name: float(scalar)}


def _never() -> bool:
    return False


def _state(metric: Any) -> Any:
    parts = parts_of(metric)
    if not parts:
        return metric.state_dict()
    return [
        {name: list(value) if isinstance(value, list) else value for name, value in part.metric_state.items()}
        for part in parts
    ]


def _restore(metric: Any, saved: Mapping[str, Any]) -> None:
    parts = parts_of(metric)
    if not parts:
        metric.load_state_dict(saved["state"])
    for part, state in zip(parts, saved["state"] if parts else (), strict=True):
        put(part, state, saved["updates"])


def look_up(path: str, *sources: Any) -> Any:
    """The entry at the dotted `path` in the first of `sources` that has it; None where none has."""
    for source in sources:
        value = source
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Metric") or name).lower()
