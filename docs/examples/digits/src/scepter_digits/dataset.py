"""The 1,797 handwritten digits that scikit-learn brings along."""

from __future__ import annotations

from typing import Literal, TypedDict

import numpy as np
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it ships no types
from torch import Tensor
from torch.utils.data import Dataset

_SHARES = {"train": (0.0, 0.7), "eval": (0.7, 0.85), "test": (0.85, 1.0)}


class Digit(TypedDict):
    """One sample: `image`, a float tensor 1×8×8 in [0, 1], and `label`, its digit as an int64 tensor."""

    image: Tensor
    label: Tensor


class DigitsDataset(Dataset[Digit]):
    """One part of the digits: 70 % to train with, 15 % each for eval and test, the same share of every digit in each.

    Args:
        split: the part.
        split_seed: decides which images go to which part.

    Raises:
        ValueError: no such part.
    """

    def __init__(self, split: Literal["train", "eval", "test"] = "train", split_seed: int = 0) -> None:
        if split not in _SHARES:
            raise ValueError(f"split must be one of {', '.join(_SHARES)}, not {split!r}")
        images, labels = load_digits(return_X_y=True)
        rows = _rows_of(split, labels, split_seed)
        self.images = torch.from_numpy(images[rows]).to(torch.float32).reshape(-1, 1, 8, 8) / 16
        self.labels = torch.from_numpy(labels[rows]).to(torch.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Digit:
        return {"image": self.images[index], "label": self.labels[index]}


def _rows_of(split: str, labels: np.ndarray, seed: int) -> np.ndarray:
    """The rows of a part: of each digit's images, shuffled, the same share."""
    begin, end = _SHARES[split]
    shuffle = np.random.default_rng(seed).permutation
    rows = [shuffle(np.flatnonzero(labels == digit)) for digit in range(10)]
    return np.concatenate([row[round(begin * len(row)) : round(end * len(row))] for row in rows])
