"""What a probed value is: something for the log, an image, an array, or nothing that can be shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
_GAP = 2  # pixels between the images of a grid
_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}  # which numpy does not have


class NotPlainError(TypeError):
    """A value is more than numbers and text."""


def spread(offered: Mapping[Any, Any]) -> dict[str, Any]:
    """Every offered value by a name of its own; dicts and lists that hold tensors are taken apart: `pair.0`, `pair.1`."""
    found: dict[str, Any] = {}
    for name, value in _leaves("", offered):
        unique, number = name, 1
        while unique in found:
            number += 1
            unique = f"{name}-{number}"
        found[unique] = value
    return found


def plain(value: Any) -> Any:
    """A number, text, None, or a list or dict of them, as JSON has it.

    JSON has no numbers that are not finite: they are the strings "NaN", "Infinity" and "-Infinity".

    Raises:
        NotPlainError: it is something else.
    """
    if isinstance(value, Tensor | np.ndarray | np.generic) and value.ndim == 0 and not _is_meta(value):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    raise NotPlainError


def is_plain(value: Any) -> bool:
    """Whether `plain` takes it."""
    try:
        plain(value)
    except NotPlainError:
        return False
    return True


def image_of(value: Any) -> Array | None:
    """The picture of an image tensor, H×W or H×W×C in bytes; None where it is none.

    Image tensors are C×H×W or N×C×H×W with 1 (grey), 3 (RGB) or 4 (RGBA) channels, uint8 or floats in [0, 1]. N of
    them become a grid, row by row.
    """
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta or value.is_nested:
        return None
    if value.ndim not in (3, 4) or value.shape[-3] not in (1, 3, 4) or value.numel() == 0:
        return None
    if value.is_floating_point():
        value = value.float()
        if not bool(((value >= 0) & (value <= 1)).all()):
            return None
        value = (value * 255).round().to(torch.uint8)
    if value.dtype != torch.uint8:
        return None
    images: Array = value.reshape(-1, *value.shape[-3:]).permute(0, 2, 3, 1).numpy()
    picture = _grid(images)
    return picture[..., 0] if picture.shape[-1] == 1 else picture


def array_of(value: Any) -> Array | None:
    """The array of a copied tensor or array, bfloat16 and 8-bit floats as float32; None where there is none."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else value
    if not isinstance(value, Tensor) or value.is_meta or value.is_nested:
        return None
    if value.is_quantized:
        value = value.dequantize()
    if value.layout is not torch.strided:
        value = value.to_dense()
    small_float = value.is_floating_point() and value.element_size() == 1
    wider = torch.float32 if small_float else _WIDER.get(value.dtype)
    value = value.to(wider) if wider is not None else value
    array: Array = value.numpy()
    return array


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    entries: Any = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, list | tuple):
        entries = enumerate(value)
    if not name or (entries and not is_plain(value)):
        for key, entry in entries:
            yield from _leaves(f"{name}.{key}" if name else str(key) or "_", entry)
    else:
        yield name, value


def _is_meta(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def _grid(images: Array) -> Array:
    """N images of one size, N×H×W×C, side by side in about as many columns as rows."""
    number, height, width, channels = images.shape
    columns = math.ceil(math.sqrt(number))
    rows = math.ceil(number / columns)
    size = (rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, channels)
    grid = np.full(size, 0 if channels == 4 else 128, dtype=np.uint8)  # between images: transparent, else grey
    for place, image in enumerate(images):
        top, left = place // columns * (height + _GAP), place % columns * (width + _GAP)
        grid[top : top + height, left : left + width] = image
    return grid
