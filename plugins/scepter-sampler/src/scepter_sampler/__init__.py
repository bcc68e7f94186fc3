"""DistSamplerHook: tells the training sampler which epoch it is."""

from __future__ import annotations

from scepter_sampler.hook import DistSamplerHook

__all__ = ["DistSamplerHook"]
