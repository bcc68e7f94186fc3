"""BackwardHook: from the loss of a step to an update of the weights."""

from __future__ import annotations

from scepter_backward.hook import BackwardEvents, BackwardHook

__all__ = ["BackwardEvents", "BackwardHook"]
