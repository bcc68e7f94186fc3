"""What a model offers to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Probing:
    """A mixin for models (and parts of models): `class Net(Probing, nn.Module)`.

    What is registered while a step runs is offered to the hooks of that step, and forgotten after it.
    """

    def register_probe(self, data: Mapping[str, Any]) -> None:
        """Offer `data`: name → tensor, array, number or text."""
        self.__dict__.setdefault("probe_data", {}).update(data)
