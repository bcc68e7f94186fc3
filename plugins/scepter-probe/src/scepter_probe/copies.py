"""Copies of what is offered, taken in the moment in which it is offered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from scepter_core import Probing


def copy_of(value: Any) -> Any:
    """`value` as it is now: tensors detached and on the CPU, arrays copied, at any depth of dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return value.detach() if value.is_meta else value.detach().to("cpu", copy=True)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: copy_of(entry) for name, entry in value.items()}
    return [copy_of(entry) for entry in value] if isinstance(value, list | tuple) else value


class _Copies(dict[str, Any]):
    """Takes the place of a part's `probe_data`: `register_probe` then stores copies, not the tensors themselves."""

    def update(self, data: Mapping[str, Any]) -> None:  # type: ignore[override]  # all that register_probe calls
        super().update(copy_of(data))


def begin_copying(parts: Iterable[Probing]) -> None:
    """From now on, what `parts` of a model offer is copied at once: later in-place changes do not alter it."""
    for part in parts:
        vars(part)["probe_data"] = _Copies()


def end_copying(parts: Iterable[Probing]) -> None:
    """`parts` keep what they have, and store what they are offered as it is again."""
    for part in parts:
        vars(part)["probe_data"] = dict(vars(part).get("probe_data", {}))
