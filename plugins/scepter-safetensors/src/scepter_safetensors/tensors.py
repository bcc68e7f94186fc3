"""What a safetensors file takes: dense tensors, each in a memory of its own, and text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

Place = tuple[Any, ...]


def place_of(tensor: Tensor) -> Place | None:
    """Where a tensor's elements are: equal for tied tensors. None where there is no element to share."""
    if tensor.layout is not torch.strided or tensor.numel() == 0 or tensor.is_meta:
        return None
    bits = (tensor.is_conj(), tensor.is_neg())  # a lazy conjugate has the memory of its original, and other values
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), bits)


def prepare(exported: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[str]]:
    """What of `exported` goes into a file, and the names of what cannot.

    Tied tensors go in once, under their first name; whatever shares memory in another way (slices, transposes) is
    written out each. The tensors given are left as they are.
    """
    tensors = {name: value for name, value in exported.items() if _fits(value)}
    users = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    weights: dict[str, Tensor] = {}
    seen: set[Place] = set()
    for name, tensor in tensors.items():
        place = place_of(tensor)
        if place in seen:
            continue
        if place is not None:
            seen.add(place)
        alone = users[tensor.untyped_storage().data_ptr()] == 1
        dense = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
        weights[name] = dense if alone or dense.data_ptr() != tensor.data_ptr() else dense.clone()
    return weights, [name for name in exported if name not in tensors]


def as_text(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Metadata as the format wants it: text only. What is None is left out, not written as a word."""
    return {str(name): str(value) for name, value in metadata.items() if value is not None}


def _fits(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
        return False
    try:
        save({"probe": torch.empty(0, dtype=value.dtype)})
    except (KeyError, ValueError):  # a kind of number that the format has no name for
        return False
    return True
