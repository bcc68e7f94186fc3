"""What a model has to beat: each character predicted from the one before it, by counting.

`python -m scepter_pylm.bigram CONFIG` counts the training data of a configuration and is asked about its eval data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from scepter_core import DATASETS, load_config
from scepter_pylm.text import CHARACTERS


def bigram_bits(train: Iterable[Tensor], held_out: Iterable[Tensor]) -> float:
    """Bits a character of the held-out windows under the counts of the others, each count one more than it is.

    As for any model here, the first character of a window is given, and each further one is predicted.

    Args:
        train, held_out: windows of characters, int64.

    Returns:
        the mean over all predicted characters, not a number where there are none.
    """
    size = len(CHARACTERS)
    counts = torch.bincount(_pairs(train), minlength=size * size).view(size, size).double() + 1
    bits = -(counts / counts.sum(dim=1, keepdim=True)).log2()
    return float(bits.flatten()[_pairs(held_out)].mean())


def _pairs(windows: Iterable[Tensor]) -> Tensor:
    """A number for every two neighbours."""
    found = [window[:-1] * len(CHARACTERS) + window[1:] for window in windows]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.int64)


def main(config: str) -> None:
    """Print the bits a character of a bigram model of the data in this configuration."""
    solver: Any = load_config(config).SOLVER
    train, held_out = (DATASETS.build(section) for section in (solver.TRAIN_DATA, solver.EVAL_DATA))
    bits = bigram_bits((sample["text"] for sample in train), (sample["text"] for sample in held_out))
    print(f"{bits:.3f} bits a character")


if __name__ == "__main__":
    main(sys.argv[1])
