"""`STRATEGY: fsdp`: parameters, gradients and optimizer state are spread over the processes (FSDP2, `fully_shard`)."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.distributed as dist
from pydantic import Field
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from scepter_core.config import Named
from scepter_core.distributed.sharded import SavedTensor, write_shards
from scepter_core.distributed.strategies.base import Strategy
from scepter_core.errors import ConfigError, Problem

Dtype = Literal["float32", "bfloat16", "float16"]


class FSDP(Strategy):
    """torch's FSDP2: each process holds a part of every parameter, and gathers a block's only while it is at work."""

    sharded = True

    class Config(Named):
        """The keys of `ENV.STRATEGY: {NAME: fsdp}`."""

        sharding: Literal["full", "grad_op", "hybrid"] = Field(
            "full",
            description="full: parameters are freed after a block's forward. grad_op: they stay until its backward. "
            "hybrid: full within a machine, whole copies between machines.",
        )
        wrap: list[str] = Field(
            [], description="Modules that are gathered one at a time, by pattern of their names: `blocks.*`. Default: the "
            "entries of every ModuleList, and of every Sequential that holds parameters in two entries or more."
        )
        param_dtype: Dtype | None = Field(None, description="Type that parameters are gathered and computed in.")
        reduce_dtype: Dtype | None = Field(None, description="Type that gradients are summed in.")

    cfg: Config
    _writers: dist.ProcessGroup | None = None

    def prepare(self, model: nn.Module, trains: bool) -> nn.Module:
        """Shard the blocks, then what is left of the model; each is moved to the device when its turn comes."""
        _refuse_parameters_without_axes(model)
        mesh = self._mesh()
        self._writers = dist.new_group(backend="gloo")  # of its own: files are written beside the training
        policy = MixedPrecisionPolicy(param_dtype=_dtype(self.cfg.param_dtype), reduce_dtype=_dtype(self.cfg.reduce_dtype))
        for block in self._blocks(model):
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=self.cfg.sharding != "grad_op")
        fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
        return model

    def _mesh(self) -> DeviceMesh:
        world, local = self.processes.world_size, self.processes.place.local_world_size
        if self.cfg.sharding == "hybrid" and len(counts := set(self.processes.gather(local))) > 1:
            raise ConfigError(
                [
                    Problem(
                        f"the machines have different numbers of processes ({', '.join(map(str, sorted(counts)))})",
                        path="ENV.STRATEGY.SHARDING",
                        found="hybrid",
                        expected="the same number on each machine; or full, or grad_op",
                    )
                ]
            )
        if self.cfg.sharding == "hybrid" and world > local:
            return init_device_mesh(self.device.type, (world // local, local), mesh_dim_names=("replicate", "shard"))
        return init_device_mesh(self.device.type, (world,), mesh_dim_names=("shard",))

    def _blocks(self, model: nn.Module) -> list[nn.Module]:
        """The modules that are sharded one by one, inner ones first."""
        named = dict(model.named_modules())
        if self.cfg.wrap:
            found = [name for name in named if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.cfg.wrap)]
            unused = [p for p in self.cfg.wrap if not any(fnmatch.fnmatchcase(name, p) for name in named)]
            if unused:
                raise ConfigError(
                    [
                        Problem(
                            f"no module of the model fits {', '.join(unused)}",
                            path="ENV.STRATEGY.WRAP",
                            expected=f"patterns of names such as {', '.join(list(named)[1:6])}",
                        )
                    ]
                )
        else:
            found = [
                f"{name}.{entry}" if name else entry
                for name, module in named.items()
                if isinstance(module, nn.ModuleList | nn.Sequential)
                for entry, child in _of_a_list(module)
            ]
        shared = _shared_parameters(model)
        blocks = [named[name] for name in sorted(found, key=lambda name: -name.count(".")) if name]
        return [block for block in blocks if not shared & {id(p) for p in block.parameters()}]

    def synchronise_gradients(self, model: nn.Module, wanted: bool) -> None:
        """Every micro-batch is reduced: what is left out would have to be kept whole."""

    def gradient_norm(self, gradients: list[torch.Tensor], kind: float = 2.0) -> torch.Tensor:
        """The norm over all parts."""
        if kind == math.inf:
            return self._largest(gradients)
        norm = super().gradient_norm(gradients, kind)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _largest(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """The largest element of all parts. torch's own fails at a part that is empty, and may lose a NaN on the way."""
        parts = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
        own = super().gradient_norm([part for part in parts if part.numel()], math.inf).to(self.device, torch.float32)
        if self.processes.world_size == 1:
            return own
        of_all = [torch.empty_like(own) for _ in range(self.processes.world_size)]
        dist.all_gather(of_all, own)
        return torch.stack(of_all).max()

    def load_weights(self, model: nn.Module, weights: Mapping[str, Any]) -> None:
        """Load this process's part of each tensor."""
        own = model.state_dict()
        model.load_state_dict({name: self.part_of(value, own[name]) for name, value in weights.items()})

    def write_parts(self, path: str, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Each process writes its parts (torch.distributed.checkpoint)."""
        if self._writers is None:
            return super().write_parts(path, state)
        return write_shards(path, state, self._writers)

    def part_of(self, saved: Any, like: torch.Tensor) -> Any:
        """The DTensor that has the parts of `like`; what has another shape (a count of steps) stays whole."""
        if not isinstance(like, DTensor) or getattr(saved, "shape", None) != like.shape:
            return saved.whole() if isinstance(saved, SavedTensor) else saved
        if isinstance(saved, SavedTensor):
            return saved.part(like)
        whole = saved.to(self.device)
        # A copy of its own: the part is a view, and would keep all of the tensor.
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None).clone()


def _refuse_parameters_without_axes(model: nn.Module) -> None:
    names = [name for name, parameter in model.named_parameters() if parameter.ndim == 0]
    if names:
        raise ConfigError(
            [
                Problem(
                    f"a parameter without axes cannot be divided: {', '.join(names)}",
                    path="ENV.STRATEGY",
                    found="fsdp",
                    expected="ddp, or a model that gives such parameters the shape [1]",
                )
            ]
        )


def _of_a_list(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The entries that are blocks: with parameters, of a list that has several."""
    entries = [(name, child) for name, child in module.named_children() if next(child.parameters(), None) is not None]
    return entries if len(entries) > 1 else []


def _shared_parameters(model: nn.Module) -> set[int]:
    """Parameters that have two names: only the whole model may own them."""
    seen: set[int] = set()
    return {id(p) for _, p in model.named_parameters(remove_duplicate=False) if id(p) in seen or seen.add(id(p))}  # type: ignore[func-returns-value]


def _dtype(name: str | None) -> torch.dtype | None:
    return getattr(torch, name) if name is not None else None
