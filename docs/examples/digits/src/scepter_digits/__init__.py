"""Handwritten digits for scepter-core: a data set and a network that knows nothing of the engine."""

from __future__ import annotations

from scepter_digits.dataset import DigitsDataset
from scepter_digits.model import DigitsNet

__all__ = ["DigitsDataset", "DigitsNet"]
