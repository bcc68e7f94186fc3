"""SafetensorsHook: the model's weights as safetensors files, and back into a model."""

from __future__ import annotations

from scepter_safetensors.hook import SafetensorsHook
from scepter_safetensors.loading import load_into

__all__ = ["SafetensorsHook", "load_into"]
