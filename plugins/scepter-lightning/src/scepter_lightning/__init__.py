"""LightningEngine: a solver's training inside `lightning.pytorch.Trainer`."""

from __future__ import annotations

from scepter_lightning.engine import LightningEngine

__all__ = ["LightningEngine"]
