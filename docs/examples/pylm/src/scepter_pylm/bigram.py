"""What a model has to beat: each character predicted from the one before it, by counting. `python -m scepter_pylm.bigram`."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from scepter_pylm.text import CHARACTERS, encode, source_files


def bigram_bits(train: Iterable[Tensor], held_out: Iterable[Tensor]) -> float:
    """Bits a character of the held-out texts under the counts of the others, each count one more than it is."""
    size = len(CHARACTERS)
    counts = torch.ones(size, size, dtype=torch.float64)
    for text in train:
        counts += torch.bincount(text[:-1] * size + text[1:], minlength=size * size).view(size, size)
    bits = -(counts / counts.sum(dim=1, keepdim=True)).log2()
    total, characters = 0.0, 0
    for text in held_out:
        total += float(bits[text[:-1], text[1:]].sum())
        characters += len(text) - 1
    return total / characters if characters else math.nan


def main() -> None:
    """Print the bits a character of a bigram model of the standard library."""
    texts = {
        split: [encode(path.read_text(encoding="utf-8", errors="replace")) for path in source_files(split)]
        for split in ("train", "eval")
    }
    texts = {split: [text for text in some if len(text) > 1] for split, some in texts.items()}
    print(f"{bigram_bits(texts['train'], texts['eval']):.3f} bits a character")


if __name__ == "__main__":
    main()
