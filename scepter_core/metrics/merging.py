"""The states of one metric in several processes as that of one which saw all batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from scepter_core.metrics.means import Gather


def parts_of(metric: Any) -> list[Any]:
    """The metric of torchmetrics and those within it (of a collection, a wrapper), each with states of its own.

    None for a metric of another kind.
    """
    if not isinstance(metric, torch.nn.Module):
        return []
    from torchmetrics import Metric

    return [part for part in metric.modules() if isinstance(part, Metric)]


@contextmanager
def merged(metric: Any, updates: int, gather: Gather, earlier: Sequence[tuple[int, list[Any]]] = ()) -> Iterator[int]:
    """While entered, the metric's state is what the batches of all processes made of it.

    Means over processes would not do: the states are joined as torchmetrics declares (sum, largest, list, …), those of
    processes without a batch left out.

    Args:
        metric: of torchmetrics.
        updates: batches that this process gave it.
        gather: brings together what the processes have.
        earlier: further batches, with the states that they made of the metric's parts: of processes before a resume.

    Yields:
        the batches of all.
    """
    parts = parts_of(metric)
    own = (updates, [_on_host(part.metric_state) for part in parts])
    told = [one for several in gather([own, *earlier]) for one in several]
    all_updates = sum(count for count, _ in told)
    if len(told) == 1 or all_updates == 0:
        yield all_updates
        return
    kept = [(dict(part.metric_state), part._update_count) for part in parts]
    for number, part in enumerate(parts):
        put(part, _joined(part, [states[number] for count, states in told if count]), all_updates)
    try:
        yield all_updates
    finally:
        for part, (state, count) in zip(parts, kept, strict=True):
            put(part, state, count)


def _joined(metric: Any, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The states of several copies of `metric` as that of one which only computes: not all of them can grow further."""
    joined: dict[str, Any] = {}
    for name, reduction in metric._reductions.items():
        values = [state[name] for state in states]
        if isinstance(values[0], torch.Tensor):
            together: Any = torch.stack([value.to(metric.device) for value in values])
        else:
            together = [entry.to(metric.device) for value in values for entry in value]
        is_kept = isinstance(together, list) and not together
        joined[name] = together if reduction is None or is_kept else reduction(together)
    return joined


def put(metric: Any, state: Mapping[str, Any], updates: int) -> None:
    """Give `metric` a state, as if it had seen so many batches."""
    for name, value in state.items():
        setattr(metric, name, value.to(metric.device) if isinstance(value, torch.Tensor) else value)
    metric._update_count, metric._computed = updates, None  # torchmetrics warns at compute() when it saw no update


def _on_host(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [entry.detach().cpu() for entry in value] if isinstance(value, list) else value.detach().cpu()
        for name, value in state.items()
    }
