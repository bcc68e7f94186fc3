"""TensorboardLogHook: the scalars of a run, for TensorBoard."""

from __future__ import annotations

from scepter_tensorboard.hook import TensorboardLogHook

__all__ = ["TensorboardLogHook"]
