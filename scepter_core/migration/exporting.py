"""Weights of a checkpoint as safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scepter_core.errors import RunError

if TYPE_CHECKING:
    import torch

_REPEATED = 2**28  # bytes by which tensors may be larger than what is stored of them


def prepare(weights: Mapping[str, Any], path: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The weights, read from `path`, as safetensors takes them, and what of them it cannot hold.

    Tied weights are stored once, under their first name.

    Raises:
        RunError: the tensors are far larger than the file.
    """
    import torch

    prepared: dict[str, torch.Tensor] = {}
    left_out: list[str] = []
    seen: set[tuple[Any, ...]] = set()
    stored: set[int] = set()
    repeated = 0
    for name, value in weights.items():
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
            left_out.append(f"{name} (no plain tensor)")
            continue
        if value.numel() and _place(value) in seen:
            left_out.append(f"{name} (tied to a weight that is there)")
            continue
        seen.add(_place(value))
        storage = value.untyped_storage()
        repeated += value.numel() * value.element_size() - (0 if storage.data_ptr() in stored else storage.nbytes())
        stored.add(storage.data_ptr())
        if repeated > _REPEATED:
            raise RunError(f"cannot convert {path}: up to {name} its weights are far larger than what is stored")
        prepared[name] = value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return prepared, left_out


def serialise(tensors: dict[str, torch.Tensor], path: str, **metadata: object) -> bytes:
    """The content of a safetensors file.

    Raises:
        RunError: the format has no name for a kind of number of the tensors, which were read from `path`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save

    try:
        return save(tensors, {"format": "pt", **{key: str(value) for key, value in metadata.items()}})
    except (ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"cannot convert {path}: safetensors cannot hold its weights: {error}") from error


def _place(value: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are one and the same."""
    return value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg()
