"""`STRATEGY: ddp`: every process has the whole model, and gradients are averaged."""

from __future__ import annotations

import re

import torch
from pydantic import Field
from torch import nn
from torch.distributed._composable.replicate import replicate

from scepter_core.config import Named
from scepter_core.distributed.strategies.base import Strategy
from scepter_core.errors import RunError


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
            _refuse_a_step_that_is_not_over(model)
            switch(wanted)


def _refuse_a_step_that_is_not_over(model: nn.Module) -> None:
    """DDP waits for the gradient of every parameter: say which had none in the last step, and what to do."""
    ddp = getattr(replicate.state(model), "_ddp", None)  # there from the first forward on
    if ddp is None:
        return
    try:
        ddp._check_reducer_finalized()
    except RuntimeError as error:
        found = re.search(r"did not receive grad for rank \d+:([ \d]+)", str(error))
        names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        unused = ", ".join(names[int(number)] for number in found[1].split()) if found else "some parameters"
        raise RunError(
            f"no gradient reached {unused} in the last step, and ddp waits for that of every parameter: set "
            "ENV.STRATEGY: {NAME: ddp, FIND_UNUSED_PARAMETERS: true}"
        ) from error
