"""ProbeDataHook: what a model and a solver offered in a step, written for people to look at."""

from __future__ import annotations

from scepter_probe.hook import ProbeDataHook

__all__ = ["ProbeDataHook"]
