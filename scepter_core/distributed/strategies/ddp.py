"""`STRATEGY: ddp`: every process has the whole model, and gradients are averaged."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn
from torch.distributed._composable.replicate import replicate

from scepter_core.config import Named
from scepter_core.distributed.strategies.base import Strategy


class DDP(Strategy):
    """torch's DistributedDataParallel, in place: the model keeps its class and the names of its parameters."""

    class Config(Named):
        """The keys of `ENV.STRATEGY: {NAME: ddp}`."""

        find_unused_parameters: bool = Field(
            False, description="Parameters may be without a gradient in a step; costs a walk over the graph each step."
        )
        bucket_cap_mb: float = Field(25.0, gt=0, description="MiB of gradients that are sent together.")

    cfg: Config

    def prepare(self, model: nn.Module, trains: bool) -> nn.Module:
        """Average the gradients of the processes while the backward is under way."""
        if trains and self.processes.world_size > 1 and any(p.requires_grad for p in model.parameters()):
            replicate(
                model,
                device_id=self.device if self.device.type == "cuda" else torch.device("cpu"),
                find_unused_parameters=self.cfg.find_unused_parameters,
                bucket_cap_mb=self.cfg.bucket_cap_mb,
            )
        return model

    def synchronise_gradients(self, model: nn.Module, wanted: bool) -> None:
        """No communication on the inner micro-batches."""
        switch = getattr(model, "set_requires_gradient_sync", None)
        if switch is not None:
            switch(wanted)
