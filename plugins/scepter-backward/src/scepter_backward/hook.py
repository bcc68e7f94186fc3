"""BackwardHook: backward, gradient accumulation, clipping, and the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch.nn.utils import clip_grads_with_norm_

from scepter_core import (
    BaseSolver,
    ConfigError,
    Hook,
    HookConfig,
    Problem,
    RunConfig,
    RunError,
    hookimpl,
    hookspec,
)


class BackwardEvents:
    """The events that BackwardHook brings. Both go to the hooks of the training mode."""

    @hookspec()
    def after_backward(self, solver: BaseSolver) -> None:
        """The gradient of an accumulation window is complete and unscaled; it is not clipped yet."""

    @hookspec()
    def after_step(self, solver: BaseSolver) -> None:
        """An update reached the weights and `total_updates` counts it; the gradients are not cleared yet."""


class BackwardHook(Hook):
    """In `after_iter` of training: the loss's gradient, and where an accumulation window closes, the update.

    The gradient of a window is the mean over its micro-batches, each counting the same, also for the shorter window
    at the end of an epoch.
    """

    role = "backward"
    events = BackwardEvents

    class Config(HookConfig):
        """The keys of BackwardHook."""

        taken_with_notice = dict.fromkeys(
            ("DO_PROFILE", "PROFILE_DIR"), "this hook does not profile; torch.profiler does, in a hook of your own"
        )

        priority: int = 0
        gradient_clip: float = Field(-1.0, description="Largest norm of the whole gradient; <= 0: no clipping.")
        accumulate_step: PositiveInt | None = Field(
            None, description="Micro-batches (steps) of one update. Default: SOLVER.ACCU_STEP."
        )
        empty_cache_step: int = Field(-1, description="Steps between torch.cuda.empty_cache(); <= 0: never.")
        on_nonfinite: Literal["error", "skip", "ignore"] = Field(
            "error", description="What a loss or gradient norm that is not finite does: end the run, leave out that "
            "update, or nothing."
        )

    cfg: Config

    def __init__(self, cfg: Config, logger: Any = None) -> None:
        super().__init__(cfg, logger=logger)
        self.accumulate_step = cfg.accumulate_step  # the solver plans its windows with it
        self._bad_window = False  # a loss of the open window was not finite, and its update is left out
        self._bad_updates: torch.Tensor | None = None  # left out on the device, not reported yet
        self._failure: str | None = None  # what such a report said, once it ended the run
        self._stepped = False  # the optimizer has made its state: the device may leave updates out
        self._solver: BaseSolver | None = None

    @classmethod
    def check(cls, cfg: Any, run: RunConfig) -> Iterable[tuple[str, str]]:
        """ACCUMULATE_STEP and SOLVER.ACCU_STEP are one number: both given must agree."""
        solver: Any = run.solver
        own, common = cfg.accumulate_step, solver.accu_step
        if own is not None and "accu_step" in solver.model_fields_set and own != common:
            yield (
                "ACCUMULATE_STEP",
                f"ACCUMULATE_STEP {own} and SOLVER.ACCU_STEP {common} say different things; give one of them",
            )

    def before_solve(self, solver: BaseSolver) -> None:
        """Training needs an optimizer."""
        self._solver = solver
        if solver.has("train") and solver.optimizer is None:
            raise ConfigError([Problem("required key is missing: BackwardHook steps it", path="SOLVER.OPTIMIZER")])

    def after_iter(self, solver: BaseSolver) -> None:
        """Add the loss's gradient to the window's; at its end, update the weights."""
        if not solver.is_train_mode:
            return
        loss = self._loss(solver)
        if self._is_fine(solver, loss):
            share = loss / solver.window_size if solver.window_size > 1 else loss
            if solver.loss_weight != 1:  # processes have shares of different sizes: the mean is over samples
                share = share * solver.loss_weight
            scaled = solver.scaler.scale(share) if solver.scaler is not None else share
            torch.autograd.backward(scaled)
        if solver.window_closes:
            self._update(solver)
        every = self.cfg.empty_cache_step
        if every > 0 and solver.train_steps % every == 0 and solver.device.type == "cuda":
            torch.cuda.empty_cache()

    def after_epoch(self, solver: BaseSolver) -> None:
        """Report what was left out on the device."""
        self._report(solver)

    @hookimpl(optionalhook=True)
    def on_log(self, solver: BaseSolver) -> None:
        """Report what was left out on the device: the log line has just waited for it."""
        self._report(solver)

    def state_dict(self) -> dict[str, Any]:
        """Whether the open window is to be left out. What the device left out is reported before anything is saved."""
        if self._solver is not None:
            self._report(self._solver)
        return {"bad_window": self._bad_window}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self._bad_window = state["bad_window"]

    # --- inside ----------------------------------------------------------------------------------------------------

    def _loss(self, solver: BaseSolver) -> torch.Tensor:
        loss = solver.iter_outputs.get("loss")
        if loss is None:
            there = ", ".join(map(str, solver.iter_outputs)) or "nothing"
            raise RunError(f"the model's outputs have no `loss` to train on; they hold: {there}")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            kind = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise RunError(f"the model's `loss` must be a tensor with one element, not {kind}")
        if not loss.requires_grad:
            raise RunError("the model's `loss` depends on no parameter that takes a gradient")
        return loss

    def _is_fine(self, solver: BaseSolver, loss: torch.Tensor) -> bool:
        """Whether the loss may have a gradient; on an accelerator nobody waits to know, the norm will tell.

        It tells all of several processes, too: none may leave out the backward that the others make.
        """
        if self.cfg.on_nonfinite == "ignore" or solver.device.type != "cpu" or solver.world_size > 1:
            return True
        value = _number(loss)
        if not math.isfinite(value):
            self._complain(solver, f"the loss is {value}")
            self._bad_window = True
        return not self._bad_window

    def _complain(self, solver: BaseSolver, what: str) -> None:
        place = f"epoch {solver.epoch}, iteration {solver.iter + 1}, update {solver.total_updates + 1}"
        if self.cfg.on_nonfinite == "error":
            raise RunError(f"{what} at {place} (loss {_number(self._loss(solver))})")
        self.logger.warning("%s at %s: this update is left out", what, place)

    def _update(self, solver: BaseSolver) -> None:
        optimizer = solver.optimizer
        gradients = [
            parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if self._bad_window or not gradients:
            self._bad_window = False
            optimizer.zero_grad(set_to_none=True)
            return
        if solver.scaler is not None:
            solver.scaler.unscale_(optimizer)
        micro_batches = solver.counters.window
        if micro_batches != solver.window_size:  # shorter than foreseen: the loader's end came unannounced
            torch._foreach_mul_(gradients, solver.window_size / micro_batches)
        solver.events.after_backward(solver)
        if self._step(solver, self._clip(solver, gradients)):
            solver.total_updates += 1
            solver.events.after_step(solver)
        optimizer.zero_grad(set_to_none=True)

    def _clip(self, solver: BaseSolver, gradients: list[torch.Tensor]) -> torch.Tensor | None:
        """Clip the gradient; returns a norm that is finite exactly when the gradient is, None where nobody asks."""
        parameters = [parameter for group in solver.optimizer.param_groups for parameter in group["params"]]
        dense = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
        if self.cfg.gradient_clip > 0:
            norm = solver.strategy.gradient_norm(dense)
            any_sparse = any(gradient.is_sparse for gradient in gradients)
            clip_grads_with_norm_(parameters, self.cfg.gradient_clip, norm, foreach=False if any_sparse else None)
            return norm
        # The largest element is as good to tell, and does not overflow where the sum of squares would.
        return solver.strategy.gradient_norm(dense, math.inf) if self.cfg.on_nonfinite != "ignore" else None

    def _step(self, solver: BaseSolver, norm: torch.Tensor | None) -> bool:
        """Step the optimizer unless the gradient is not finite; whether the weights moved, as far as is known."""
        optimizer = solver.optimizer
        if solver.scaler is not None:
            # Overflow is the scaler's business: it leaves the update out and lowers its scale.
            scale = solver.scaler.get_scale()
            solver.scaler.step(optimizer)
            solver.scaler.update()
            return bool(solver.scaler.get_scale() >= scale)
        if norm is None or self.cfg.on_nonfinite == "ignore":
            optimizer.step()
            return True
        # A fused optimizer that leaves out its very first update would keep state that nothing was written to.
        if self._stepped and self._can_leave_out_on_device(solver):
            self._step_on_device(optimizer, norm)
            return True
        if not math.isfinite(_number(norm)):
            self._complain(solver, f"the gradient's norm is {_number(norm)}")
            return False
        optimizer.step()
        self._stepped = True
        return True

    def _can_leave_out_on_device(self, solver: BaseSolver) -> bool:
        fused = all(group.get("fused") for group in solver.optimizer.param_groups)
        return fused and solver.device.type != "cpu" and not solver.strategy.sharded

    def _step_on_device(self, optimizer: Any, norm: torch.Tensor) -> None:
        """A fused optimizer takes `found_inf` as GradScaler gives it: 1 leaves the update out, without the host."""
        bad = (~torch.isfinite(norm)).to(torch.float32).reshape(())
        optimizer.found_inf = bad
        try:
            optimizer.step()
        finally:
            del optimizer.found_inf
        self._bad_updates = bad if self._bad_updates is None else self._bad_updates + bad

    def _report(self, solver: BaseSolver) -> None:
        if self._failure is not None:
            raise RunError(self._failure)
        number = int(self._bad_updates) if self._bad_updates is not None else 0
        self._bad_updates = None
        if number:
            solver.total_updates -= number
            try:
                self._complain(solver, f"the gradient was not finite in {number} update(s) since the last report, seen")
            except RunError as error:
                self._failure = str(error)
                raise


def _number(value: torch.Tensor) -> float:
    """The number in a tensor of one element; on the CPU without a call that would wait for a device."""
    if value.device.type == "cpu" and value.dtype in (torch.float32, torch.float64):
        return float(value.detach().numpy().reshape(-1)[0])
    return float(value.detach())
