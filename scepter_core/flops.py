"""Floating-point operations of a model, counted by fvcore, without a trace left in the model."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from scepter_core.data import get_streams, set_streams
from scepter_core.errors import RunError


def count_flops(model: nn.Module, data: Mapping[str, Any], keys: Sequence[str] = ()) -> int:
    """fvcore's count (multiply-adds) of one forward pass over one sample.

    Args:
        model: counted in eval mode, on a copy: its mode, buffers, gradients and the random streams stay as they are.
        data: inputs by name; tensors and lists, of which the first element of the batch axis is taken.
        keys: the inputs to give, in this order; all when empty.

    Raises:
        RunError: fvcore is not installed, or a key is not in `data`.
    """
    try:
        from fvcore.nn import FlopCountAnalysis
    except ImportError:
        raise RunError("counting flops needs fvcore: pip install 'scepter-core[flops]'") from None
    missing = [name for name in keys if name not in data]
    if missing:
        raise RunError(f"register_flops: no {', '.join(missing)} among the inputs {', '.join(data)}")
    names = list(keys) or list(data)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    streams = get_streams(device)
    logging.getLogger("fvcore").setLevel(logging.ERROR)  # else a warning for each operation that it does not count
    try:
        with torch.no_grad():
            analysis = FlopCountAnalysis(
                _ByName(copy.deepcopy(model).eval(), names), tuple(_first(data[name], device) for name in names)
            )
            analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
            return int(analysis.total())
    finally:
        set_streams(streams, device)


class _ByName(nn.Module):
    """fvcore traces positional arguments; models here take keywords and may give dicts."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> list[torch.Tensor]:
        named = dict(zip(self.names, inputs, strict=True))
        return _tensors(self.model(**named))


def _tensors(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, list | tuple):
        return [tensor for output in outputs for tensor in _tensors(output)]
    return []


def _first(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value[:1].to(device)
    if isinstance(value, list):
        return [_first(entry, device) if isinstance(entry, torch.Tensor) else entry for entry in value[:1]]
    if isinstance(value, Mapping):
        return {name: _first(entry, device) for name, entry in value.items()}
    return value
