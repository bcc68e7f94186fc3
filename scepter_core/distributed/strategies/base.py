"""What a strategy is: how a model and its gradients spread over the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import get_total_norm

from scepter_core.config import Named, Section
from scepter_core.distributed.processes import Processes


class Strategy:
    """How a model spreads over processes; this one, `single`, keeps it in one.

    A package brings another one by the entry-point group `scepter.strategies`, and a configuration names it under
    `ENV.STRATEGY`. It overrides what it does in another way.

    Args:
        cfg: the validated section.
        logger: where it logs.
        processes: those of the run.
        device: this process's.

    Attributes:
        Config: the section's model.
        sharded: whether parameters are DTensors, of which each process holds a part: checkpoints are then folders, that
            all processes write, and a model may be larger than a device: `prepare` moves it there bit by bit.
    """

    Config: ClassVar[type[Section]] = Named
    sharded: ClassVar[bool] = False

    def __init__(self, cfg: Any, logger: Any = None, *, processes: Processes, device: torch.device) -> None:
        self.cfg, self.logger, self.processes, self.device = cfg, logger, processes, device

    def prepare(self, model: nn.Module, trains: bool) -> nn.Module:
        """The model as the run calls it; the names of its parameters stay.

        Args:
            model: on its device already; where the strategy is `sharded`, as it was made.
            trains: whether gradients will be asked for.
        """
        return model

    def synchronise_gradients(self, model: nn.Module, wanted: bool) -> None:
        """Before a training step: whether its backward joins the gradients of the processes.

        The inner micro-batches of an accumulation window need not.
        """

    def synchronise_buffers(self, model: nn.Module) -> None:
        """Give every process the first one's buffers (running means): before an eval, and before they are saved."""
        if self.processes.world_size == 1:
            return
        for buffer in model.buffers():
            whole = buffer.detach().contiguous()
            dist.broadcast(whole.view(torch.uint8) if whole.dtype == torch.bool else whole, src=0)
            if whole.data_ptr() != buffer.data_ptr():
                buffer.copy_(whole)

    def gradient_norm(self, gradients: list[torch.Tensor], kind: float = 2.0) -> torch.Tensor:
        """The norm of the whole gradient, over all parameters and all parts of them.

        Args:
            kind: which norm; infinity for the largest element.
        """
        return get_total_norm(gradients, kind)

    def load_weights(self, model: nn.Module, weights: Mapping[str, Any]) -> None:
        """Load the plain model's state dict, its tensors as `part_of` takes them."""
        model.load_state_dict(weights)

    def window_gradients(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """What a checkpoint within an accumulation window keeps of it: the gradient so far, the mean over the processes.

        By parameter, those without a gradient left out; the same in every process.
        """
        own = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        if self.processes.world_size == 1 or self.sharded:
            return own
        everyone = {name for names in self.processes.gather(list(own)) for name in names}
        gradients = {}
        for name, parameter in model.named_parameters():
            if name in everyone:
                gradient = own[name].clone() if name in own else torch.zeros_like(parameter)
                dist.all_reduce(gradient)
                gradients[name] = gradient / self.processes.world_size
        return gradients

    def write_parts(self, path: str, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the checkpoint file `path` has to hold, None in a process that does not write it.

        Every process calls this, perhaps in a thread, with tensors that do not change meanwhile; what is spread over
        processes is written here, beside the file.
        """
        return state if self.processes.writes else None

    def part_of(self, saved: Any, like: torch.Tensor) -> Any:
        """What this process holds of something saved that belongs to `like`: a parameter.

        Args:
            saved: a number, a tensor, whole and on the host, or, where the strategy is `sharded` and the checkpoint's
                tensors lie in the files of several processes, a `SavedTensor`.
        """
        return saved


