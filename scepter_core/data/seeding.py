"""Randomness as a function of position, not of history.

Every random stream is set from a key made of SEED and of where the run stands, so that a resumed run, a run with
another number of workers, or a run with an eval between two epochs draws the very same numbers.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import torch


def key(seed: int, *position: str | int) -> int:
    """A 64-bit seed of `position` under `seed`: equal for equal arguments, unrelated for any others."""
    text = "/".join(map(str, (seed, *position)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def seed_streams(value: int, device: torch.device | None = None) -> None:
    """Set the global streams of python, numpy and torch (CPU, and `device` where it is an accelerator)."""
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    torch.default_generator.manual_seed(value)
    if device is not None and device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(value)
    elif device is not None and device.type == "mps":
        torch.mps.manual_seed(value)


def get_streams(device: torch.device | None = None) -> dict[str, Any]:
    """The state of the streams of `seed_streams`, in types that `torch.load(weights_only=True)` reads."""
    numpy: Any = np.random.get_state(legacy=True)
    name, words, position, has_gauss, cached = numpy
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(words.astype(np.int64)), int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
    }
    if device is not None and device.type == "cuda":
        state["device"] = torch.cuda.get_rng_state(device)
    return state


def set_streams(state: dict[str, Any], device: torch.device | None = None) -> None:
    """Put back what `get_streams` gave. A device's stream is left alone where the other machine had none."""
    random.setstate(_as_tuple(state["python"]))
    name, words, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, words.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if device is not None and device.type == "cuda" and "device" in state:
        torch.cuda.set_rng_state(state["device"], device)


def _as_tuple(state: Any) -> Any:
    version, words, gauss = state
    return version, tuple(words), gauss
