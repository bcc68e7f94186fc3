"""SAVE_EVAL_DATA: what the metrics of an eval were given, in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from scepter_core.errors import RunError
from scepter_core.io import FileSystem
from scepter_core.metrics.means import Gather
from scepter_core.metrics.named import look_up


class EvalData:
    """Tensors of an eval's batches, joined along the batch axis, on the host.

    Args:
        keys: entries of the outputs, else of the batch; dotted paths.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(dict.fromkeys(keys))
        self.reset()

    def reset(self) -> None:
        """Begin an eval."""
        self._parts: dict[str, list[torch.Tensor]] = {key: [] for key in self.keys}

    def add(self, outputs: Mapping[str, Any], batch: Any) -> None:
        """Take in a batch. Raises RunError for a key that is not there or is no tensor."""
        for key, parts in self._parts.items():
            value = look_up(key, outputs, batch)
            if not isinstance(value, torch.Tensor):
                kind = "is not there" if value is None else f"is a {type(value).__name__}"
                raise RunError(f"SAVE_EVAL_DATA: {key} {kind}; only tensors of the outputs and the batch can be saved")
            parts.append((value.reshape(1) if value.ndim == 0 else value).detach().cpu())

    def join(self, gather: Gather) -> None:
        """Take in what the other processes have, batch by batch in the order of the ranks."""
        several = gather(self._parts)
        if len(several) > 1:
            rows = {key: zip_longest(*(parts[key] for parts in several)) for key in self.keys}
            self._parts = {key: [part for row in found for part in row if part is not None] for key, found in rows.items()}

    def write(self, file_system: FileSystem, path: str) -> None:
        """Write what was taken in as a safetensors file, whole or not at all, and forget it."""
        from safetensors.torch import save

        joined = {key: torch.cat(parts).contiguous() for key, parts in self._parts.items() if parts}
        self.reset()
        data = save(joined, {"format": "pt"})
        file_system.write_atomic(path, lambda file: file.write(data))
