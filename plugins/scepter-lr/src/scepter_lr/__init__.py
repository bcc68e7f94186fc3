"""LrHook: the learning rate of every parameter group, before the iterations that use it."""

from __future__ import annotations

from scepter_lr.hook import LrHook

__all__ = ["LrHook"]
