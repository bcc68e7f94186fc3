"""CheckpointHook: the run's whole state in files that are there whole or not at all."""

from __future__ import annotations

from scepter_checkpoint.hook import CheckpointEvents, CheckpointHook

__all__ = ["CheckpointEvents", "CheckpointHook"]
