"""The life of a run: a loop that emits events, and nothing else.

`solve`, `solve_train`, `run_train` below read as the order of things is documented; what happens at each event is the
hooks' business. How the parts are built stands in `setup`, what a checkpoint holds in `state`, and which one is
gone on from in `resuming`.
"""

from __future__ import annotations

import inspect
import signal
import sys
import time
from abc import ABC
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from scepter_core.data import (
    LoaderData,
    get_streams,
    key,
    seed_streams,
    set_streams,
    to_device,
)
from scepter_core.errors import RunError, Stopped
from scepter_core.flops import count_flops
from scepter_core.metrics import EvalData, WeightedMeans
from scepter_core.probe import Probing
from scepter_core.runconfig import dump_config
from scepter_core.sections import MODES, SolverConfig
from scepter_core.solver.resuming import load_from
from scepter_core.solver.setup import SolverSetup
from scepter_core.solver.sharing import EpochStart, shares
from scepter_core.solver.state import load_state, save_state, weights_for_export

_PRECISIONS = {"16": torch.float16, "bf16": torch.bfloat16}
_OF_THE_STEP = ("iter_outputs", "loss", "batch_size", "loss_weight", "data_time", "is_last_iter")


class BaseSolver(SolverSetup, ABC):
    """Runs training, evaluation and test; subclasses override any member.

    A subclass that overrides `__init__` takes any keys beside those of SOLVER; one that declares a `Config` of its own
    (a subclass of SolverConfig) has them validated.

    Attributes (beside those of the configuration):
        datas, hooks_dict: by mode, the data and the list of hooks.
        model, metrics, optimizer, lr_scheduler, scaler, device: the parts.
        mode: the mode that is running.
        events: the bus's table of that mode, one callable an event.
        iter_outputs: the outputs of the present step. loss: its loss, in training.
        batch_size: samples in the present batch, of this process. loss_weight: of its mean loss among the processes'. data_time: seconds that were waited for it.
        is_last_iter: whether this iteration is the last of its epoch (or of the run).
        window_opens, window_closes: whether an accumulation window begins, ends with this training iteration.
        window_size: micro-batches that the open window will have (ACCUMULATE_STEP where the epoch's end is not known).
        epoch_outputs: by mode, the metrics of its last epoch.
        nothing_to_do: the run was resumed and is finished already.
    """

    Config = SolverConfig

    def __init__(self, cfg: SolverConfig, logger: Any = None) -> None:
        super().__init__(cfg, logger=logger)
        self.events = self.bus.on["train"]
        self.means = {mode: WeightedMeans() for mode in MODES}
        self.epoch_outputs: dict[str, dict[str, float]] = {}
        self.iter_outputs: dict[str, Any] = {}
        self.loss: Any = None
        self.batch_size, self.loss_weight, self.data_time = 0, 1.0, 0.0
        self.is_last_iter = self.window_opens = self.window_closes = False
        self.window_size = 1
        self._probe_data: dict[str, Any] = {}
        self._probing: list[Any] = []  # the parts of the model that offer data
        self.nothing_to_do = False
        self.deadline: float | None = None  # of time.monotonic(), seconds
        self.max_batches = -1  # of an eval or a test; -1: all
        self._stop: Stopped | None = None  # asked of this process
        self._save_asked = self._save_agreed = False  # a checkpoint, of this process, of all
        self._settling: str | None = None
        self._model_flops: int | None = None

    # --- the run ---------------------------------------------------------------------------------------------------

    def solve(self, epoch: int | None = None, every_epoch: bool = False) -> None:
        """The run, from where it stands to its end.

        Args:
            epoch: start as if that many epochs were done.
            every_epoch: where nothing trains, MAX_EPOCHS passes of eval and test in place of one.

        Raises:
            Stopped: it was asked to end, and stands where a checkpoint can be taken.
            Exception: what a hook or the model raised, after every hook's on_exception and after_solve.
        """
        if epoch is not None:
            self._take_as_done(epoch)
        try:
            self.before_solve()
            owed = self.counters.pending or self.counters.closing
            self.nothing_to_do = self.has("train") and self.training_done and not owed
            if self.nothing_to_do:
                self.logger.info("the run is finished: %s. Nothing to do", self._progress())
            else:
                self._begin_work()
                if self.has("train"):
                    self._train_to_the_end()
                else:
                    self._pass_without_training(max(self.max_epochs, 1) if every_epoch else 1)
        except BaseException as error:
            self._tell_hooks_of(error)
            raise
        else:
            self.after_solve()
        finally:
            for data in self.datas.values():
                if isinstance(data, LoaderData):
                    data.close()
            self._close_files()

    def _train_to_the_end(self) -> None:
        if not self.training_done and self.cfg.test_interval <= 0 and "test" in self.counters.pending:
            self.counters.pending.remove("test")  # MAX_EPOCHS grew since: that test is not the last one any more
        if self.counters.closing is not None:  # resumed from a checkpoint of its on_metrics
            mode, self.counters.closing = self.counters.closing, None
            with self.in_mode(mode):
                self.after_epoch()
        self.engine.train(self)

    def reach_next_epoch(self) -> bool:
        """Before a training epoch: the evals and tests that are due. Whether there is another epoch to train.

        Raises:
            Stopped: the run was asked to end.
        """
        self._run_pending()
        self._end_if_asked()
        return not self.training_done

    def _pass_without_training(self, passes: int) -> None:
        for _ in range(passes):
            for mode in ("eval", "test"):
                if self.has(mode):
                    self._solve_mode(mode)

    def solve_train(self) -> None:
        """One training epoch (one pass of the loader with NUM_FOLDS)."""
        with self.train_epoch():
            self.run_train()

    @contextmanager
    def train_epoch(self) -> Iterator[None]:
        """What stands around the iterations of a training epoch: `before_epoch`; `on_metrics` and `after_epoch`."""
        with self.in_mode("train"):
            self._open_train_epoch()
            self.before_epoch()
            yield
            self.counters.in_epoch = False
            self.counters.pending = self._due_after_epoch()
            self._close_epoch()

    def solve_eval(self) -> None:
        """One pass over the eval data; leaves no trace in training."""
        self._solve_without_training("eval")

    def solve_test(self) -> None:
        """One pass over the test data; leaves no trace in training."""
        self._solve_without_training("test")

    def run_train(self) -> None:
        """The training iterations of an epoch."""
        self.before_all_iter()
        for batch_idx, batch in self.train_batches():
            self.run_iteration(batch, batch_idx)
        self.after_all_iter()

    def run_eval(self) -> None:
        """The iterations of an eval."""
        self._run_without_training()

    def run_test(self) -> None:
        """The iterations of a test."""
        self._run_without_training()

    def run_iteration(self, batch: Any, batch_idx: int) -> None:
        """One iteration of the mode: `before_iter`, `run_step_*`, `after_iter`; after it, the eval that may be due."""
        self.before_iter()
        self._seed_step()
        run_step = getattr(self, f"run_step_{self.mode}")
        self._take_in(batch, run_step(batch, batch_idx, self.total_iter, self.rank))
        self.after_iter()
        self._advance()

    def run_step_train(
        self, batch_data: Any, batch_idx: int = 0, step: int | None = None, rank: int | None = None
    ) -> dict[str, Any]:
        """One batch through the model: `model(**batch_data)`.

        Args:
            batch_data: the batch, on the run's device; its entries are the model's keyword arguments.
            batch_idx: its number in the epoch, from 0.
            step: its number in the run, from 0.
            rank: this process's.

        Returns:
            the outputs; with `loss` when training.
        """
        return self._forward(batch_data)

    def run_step_eval(
        self, batch_data: Any, batch_idx: int = 0, step: int | None = None, rank: int | None = None
    ) -> dict[str, Any]:
        """One batch of an eval through the model; arguments and result as `run_step_train`."""
        return self._forward(batch_data)

    def run_step_test(
        self, batch_data: Any, batch_idx: int = 0, step: int | None = None, rank: int | None = None
    ) -> dict[str, Any]:
        """One batch of a test through the model; arguments and result as `run_step_train`."""
        return self._forward(batch_data)

    # --- events ----------------------------------------------------------------------------------------------------

    def before_solve(self) -> None:
        """Emit `before_solve` to every hook of the run."""
        self.events.before_solve(self)

    def after_solve(self) -> None:
        """Emit `after_solve` to every hook of the run."""
        self.events.after_solve(self)

    def before_epoch(self) -> None:
        """Emit `before_epoch` to the hooks of the mode."""
        self.events.before_epoch(self)

    def after_epoch(self) -> None:
        """Emit `after_epoch` to the hooks of the mode."""
        self.events.after_epoch(self)

    def before_all_iter(self) -> None:
        """Emit `before_all_iter` to the hooks of the mode."""
        self.events.before_all_iter(self)

    def after_all_iter(self) -> None:
        """Emit `after_all_iter` to the hooks of the mode."""
        self.events.after_all_iter(self)

    def before_iter(self) -> None:
        """Emit `before_iter` to the hooks of the mode."""
        self.events.before_iter(self)

    def after_iter(self) -> None:
        """Emit `after_iter` to the hooks of the mode."""
        self.events.after_iter(self)

    # --- what hooks and subclasses call ----------------------------------------------------------------------------

    def collect_log_vars(self) -> OrderedDict[str, float]:
        """What the log shows beside the outputs: the present rate of each parameter group, `pg0_lr`, …"""
        groups = self.optimizer.param_groups if self.optimizer is not None else []
        return OrderedDict((f"pg{number}_lr", float(group["lr"])) for number, group in enumerate(groups))

    def save_checkpoint(self) -> dict[str, Any]:
        """The whole resumable state, of plain values and tensors. The tensors are the run's own, not copies."""
        return save_state(self)

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Put the run where `checkpoint` was taken. Raises RunError before anything is changed when it does not fit.

        Under a strategy that spreads tensors over the processes, those that are saved so come as a `SavedTensor`.
        """
        load_state(self, checkpoint)

    def load_from(self, wanted: str) -> str | None:
        """Put the run where the checkpoint was taken that `wanted` means: `auto`, `best`, `last`, or a path.

        Returns:
            its path; None where `auto` finds none.

        Raises:
            RunError: there is no such file, it is damaged, or it does not fit.
        """
        return load_from(self, wanted)

    def save_safetensors(self) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        """The weights under the plain model's names, each stored once and contiguous, and metadata as text."""
        metadata = {"format": "pt", "step": str(self.train_steps), "epoch": str(self.epoch)}
        return weights_for_export(self.model), metadata

    def register_probe(self, data: Mapping[str, Any]) -> None:
        """Offer `data` (name → tensor, array, number, text) to the hooks of the present step; forgotten after it.

        A model does the same through its own `register_probe`, as a `scepter_core.Probing`.
        """
        self._probe_data.update(data)

    @property
    def probe_data(self) -> dict[str, Any]:
        """What the model and the solver offered in the present step, by name; the solver's wins."""
        offered = [getattr(part, "probe_data", {}) for part in self._probing]
        return {name: value for data in (*offered, self._probe_data) for name, value in data.items()}

    def _forget_probes(self) -> None:
        for data in (self._probe_data, *(getattr(part, "probe_data", {}) for part in self._probing)):
            data.clear()

    def register_flops(self, data: Mapping[str, Any], keys: list[str] | None = None) -> None:
        """Count the model's floating-point operations for one sample, into `_model_flops`.

        Args:
            data: inputs by name; tensors and lists, of which the first element of the batch axis is taken.
            keys: the inputs to give, in this order; all when empty.
        """
        self._model_flops = count_flops(self.model, data, keys or [])

    def crossed(self, interval: int) -> bool:
        """At the end of a training epoch: whether it is time for what happens every `interval` (<= 0: never).

        Counts epochs, and steps in a run that only MAX_STEPS limits. With NUM_FOLDS: whether the pass that just ended
        crossed a multiple.
        """
        if interval <= 0:
            return False
        if self.cfg.counts_steps:
            return self.train_steps % interval == 0
        before = (self.epoch - 1) // self.num_folds * self.num_folds
        return before // interval != self.epoch // interval

    def request_stop(self, signum: int, reason: str = "") -> None:
        """Ask the run to end after the present step, as a signal handler may: `solve` then raises Stopped."""
        self._stop = Stopped(signum, reason)

    def request_save(self) -> None:
        """Ask for a checkpoint at the end of the next training step, as a signal handler may; the run goes on."""
        self._save_asked = True

    @property
    def save_requested(self) -> bool:
        """Whether a checkpoint of this training step was asked for; the same in every process."""
        return self._save_agreed or (self._save_asked and self.world_size == 1)

    @contextmanager
    def in_mode(self, mode: str) -> Iterator[None]:
        """Be in `mode` for a while: events go to its hooks.

        For eval and test, without gradients and with the model in eval mode; afterwards every submodule is back in
        the mode in which it was, and neither the random streams nor what is known of the present step has changed.
        """
        outer, self.mode = self.mode, mode
        self.events = self.bus.on[mode]
        try:
            if mode == "train":
                yield
                return
            step = {name: getattr(self, name) for name in _OF_THE_STEP}
            training = [(module, module.training) for module in self.model.modules()]
            streams = get_streams(self.device)
            offered, self._probe_data = self._probe_data, {}
            of_parts = [(part, part.__dict__.pop("probe_data", {})) for part in self._probing]
            self.strategy.synchronise_buffers(self.model)
            self.model.eval()
            try:
                with torch.no_grad():
                    yield
            finally:
                for module, flag in training:
                    module.training = flag
                set_streams(streams, self.device)
                self._probe_data = offered
                for part, data in of_parts:
                    part.__dict__["probe_data"] = data
                vars(self).update(step)
        finally:
            self.mode, self.events = outer, self.bus.on[outer]

    # --- results ---------------------------------------------------------------------------------------------------

    @property
    def agg_iter_outputs(self) -> dict[str, float]:
        """Means of the scalar outputs over the mode's epoch so far, of all processes: all have to ask. Waits for the device."""
        return self.means[self.mode].compute(self.processes.gather)

    # --- inside ----------------------------------------------------------------------------------------------------

    def train_batches(self) -> Iterator[tuple[int, Any]]:
        """The batches of this pass from where it stands, each with its number in its epoch."""
        while True:
            yield from self._epoch_batches()
            last = self.epoch % self.num_folds == 0 or 0 < self.max_epochs <= self.epoch
            if last or 0 < self.max_steps <= self.train_steps:
                return
            self.counters.epoch += 1
            self.counters.iter["train"] = 0
            self.epoch_start = EpochStart()

    def _epoch_batches(self) -> Iterator[tuple[int, Any]]:
        counters, mode = self.counters, self.mode
        limit = self.max_steps if mode == "train" else 0
        start = self.epoch_start if mode == "train" else EpochStart()
        if 0 < limit <= counters.train_steps:  # resumed from within the last step
            counters.cut = start.left(self.datas[mode], counters.iter[mode]) != 0
            return
        asked = time.perf_counter()
        for share in shares(self.datas[mode], self.processes, counters.epoch, counters.iter[mode], start):
            batch = share.batch if self.device.type == "cpu" else to_device(share.batch, self.device)
            self.batch_size, self.loss_weight = share.samples, share.weight
            self.data_time = time.perf_counter() - asked
            if mode == "train":
                self.is_last_iter = share.is_last or counters.train_steps + 1 == limit
                self._place_in_window()
                self.strategy.synchronise_gradients(self.model, self.window_closes)
            else:
                self.is_last_iter = share.is_last or counters.iter[mode] + 1 == self.max_batches
            yield counters.iter[mode], batch
            if self.is_last_iter:
                counters.cut = counters.cut if mode != "train" else not share.is_last
                return
            asked = time.perf_counter()
        if counters.iter[mode] == 0:  # a stream: other data are asked for their length at the start
            raise RunError(f"the {mode} data gave no batch: its stream had ended at once, or DROP_LAST left out all of it")

    def _place_in_window(self) -> None:
        """Where this iteration is in its accumulation window; nothing crosses the end of an epoch or of the run."""
        counters, done = self.counters, self.counters.window
        self.window_opens = done == 0
        if self.window_opens:  # its size stays, also over a resume with other settings: the gradient is scaled by it
            left_of_epoch = self.epoch_start.left(self.datas["train"], counters.iter["train"])
            left_of_run = self.max_steps - counters.train_steps
            self.window_size = min(n for n in (self.accumulate_step, left_of_epoch, left_of_run) if n > 0)
        self.window_closes = self.is_last_iter or done + 1 >= self.window_size

    def _forward(self, batch_data: Any) -> dict[str, Any]:
        if not isinstance(batch_data, Mapping):
            raise RunError(
                f"the {self.mode} data gives batches of type {type(batch_data).__name__}, and the model takes the "
                "entries of a batch by name: let the data set return a dict"
            )
        with self._autocast():
            try:
                return _as_dict(self.model(**batch_data))
            except TypeError as error:
                self._say_what_the_model_takes(batch_data, error)
                raise

    def _say_what_the_model_takes(self, batch: Mapping[str, Any], error: TypeError) -> None:
        """Raise a RunError where the batch's entries are not the parameters of the model's forward."""
        signature = inspect.signature(self.model.forward)
        try:
            signature.bind(**batch)
        except TypeError as mismatch:
            raise RunError(
                f"the model's forward and the {self.mode} data do not fit: {mismatch}\n"
                f"    forward takes: {', '.join(signature.parameters) or 'nothing'}\n"
                f"    a batch holds: {', '.join(map(str, batch)) or 'nothing'}"
            ) from error

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = _PRECISIONS.get(str(self.cfg.train_precision))
        return torch.autocast(self.device.type, dtype=kind) if kind is not None else nullcontext()

    def _seed_step(self) -> None:
        seed_streams(key(self.env.seed, self.mode, self.total_iter, self.rank), self.device)

    def _take_in(self, batch: Any, outputs: Any) -> None:
        """What a step gave: for the hooks of `after_iter`, for the epoch's means and metrics, for the counters."""
        self.iter_outputs = {name: _as_it_was(value) for name, value in _as_dict(outputs).items()}
        loss = self.iter_outputs.get("loss")
        if isinstance(loss, torch.Tensor) and loss.ndim and loss.numel() == 1:
            self.iter_outputs["loss"] = loss.reshape(())
        if self.batch_size > 0 or self.world_size == 1:
            self._count(batch)
        if self.mode != "train":
            return
        self.loss = self.iter_outputs.get("loss")
        self.counters.train_steps += 1
        self.counters.window += 1
        if not self.is_last_iter:
            self.counters.pending = self._due_in_mid_epoch()

    def _count(self, batch: Any) -> None:
        self.means[self.mode].add(self.iter_outputs, self.batch_size)
        if self.metrics is not None:
            self.metrics.update(self.mode, self.iter_outputs, batch)
        if self.mode == "eval" and self.eval_data is not None:
            self.eval_data.add(self.iter_outputs, batch)

    def _advance(self) -> None:
        """The step is over: count it, run the evals that interrupt an epoch, end if that was asked for."""
        if self._probe_data or self._probing:
            self._forget_probes()
        counters = self.counters
        counters.iter[self.mode] += 1
        counters.total_iter[self.mode] += 1
        if self.mode == "train":
            if self.save_requested:
                self._save_asked = self._save_agreed = False
            if self.window_closes:
                counters.window = 0
            self._run_pending()
        if self.mode == "train" or self._settling is not None or not self.has("train"):
            self._end_if_asked()  # not in an eval that a hook began: its training step is not over

    def _solve_without_training(self, mode: str) -> None:
        with self.in_mode(mode):
            self._open_epoch(mode)
            self.counters.under_way = mode
            self.before_epoch()
            getattr(self, f"run_{mode}")()
            if self._settling == mode:
                self.counters.pending.remove(mode)
            self.counters.under_way = None
            self._close_epoch()

    def _run_without_training(self) -> None:
        self.before_all_iter()
        for batch_idx, batch in self._epoch_batches():
            self.run_iteration(batch, batch_idx)
        self.after_all_iter()

    def _solve_mode(self, mode: str) -> None:
        (self.solve_eval if mode == "eval" else self.solve_test)()

    def _run_pending(self) -> None:
        while self.counters.pending:
            self._settling = self.counters.pending[0]
            try:
                self._solve_mode(self._settling)
                if self._settling in self.counters.pending:  # a subclass's own solve_eval
                    self.counters.pending.remove(self._settling)
            finally:
                self._settling = None

    def _open_train_epoch(self) -> None:
        counters = self.counters
        if not (counters.in_epoch or counters.cut):  # else resumed in mid-epoch
            counters.epoch += 1
            counters.window = 0
            self._open_epoch("train")
        counters.in_epoch, counters.cut = True, False

    def _open_epoch(self, mode: str) -> None:
        self.counters.iter[mode] = 0
        if mode == "train":
            self.epoch_start = EpochStart()
        self.epoch_outputs.pop(mode, None)
        self.means[mode].reset()
        if self.metrics is not None:
            self.metrics.reset(mode)
        if mode == "eval" and self.eval_data is not None:
            self.eval_data.reset()

    def _close_epoch(self) -> None:
        """The end of an epoch: its metrics are final, then `after_epoch`; a checkpoint between them owes the latter."""
        self.counters.closing = self.mode
        self._settle_metrics()
        self.counters.closing = None
        self.after_epoch()

    def _settle_metrics(self) -> None:
        metrics = self.means[self.mode].compute(self.processes.gather)
        if self.metrics is not None:
            metrics.update(self.metrics.compute(self.mode, self.processes.gather))
        self.epoch_outputs[self.mode] = metrics
        if self.mode == "eval" and self.eval_data is not None:
            self._write_eval_data(self.eval_data)
        self.events.on_metrics(self, self.mode, metrics)

    def _write_eval_data(self, data: EvalData) -> None:
        name = f"{self.train_steps if self.cfg.counts_steps else self.epoch}.safetensors"
        data.join(self.processes.gather)
        if self.processes.writes:
            data.write(self.file_system, self.file_system.join(self.work_dir, "eval", name))

    def _due_in_mid_epoch(self) -> list[str]:
        if not self.cfg.counts_steps:
            return []
        intervals = {"eval": self.eval_interval or 0, "test": self.cfg.test_interval}
        return [m for m, n in intervals.items() if self.has(m) and n > 0 and self.train_steps % n == 0]

    def _due_after_epoch(self) -> list[str]:
        cut_by_steps = 0 < self.max_steps <= self.train_steps
        due = []
        if self.has("eval") and (
            cut_by_steps or self.crossed(self.eval_interval or 0)
        ):
            due.append("eval")
        last_test = self.cfg.test_interval <= 0 and self.training_done
        if self.has("test") and (last_test or self.crossed(self.cfg.test_interval)):
            due.append("test")
        return due

    def _take_as_done(self, epoch: int) -> None:
        counters = self.counters
        counters.epoch = epoch
        if self.steps_per_epoch > 0:
            counters.train_steps = counters.total_iter["train"] = epoch * self.steps_per_epoch
            counters.total_updates = epoch * self.updates_per_epoch

    def _begin_work(self) -> None:
        self._probing = [part for part in self.model.modules() if isinstance(part, Probing)]
        try:
            self._open_files()
        except OSError as error:
            raise RunError(f"cannot write to {self.work_dir}: {error}") from error

    def _open_files(self) -> None:
        if not self.processes.writes:
            return
        self.file_system.makedirs(self.work_dir)
        if self._log_file is not None:
            self._log_file.open()
        if self.root is not None and self.has("train"):
            self.file_system.remove_temporaries(self.work_dir, of="config.yaml")  # of a process that was killed
            self.file_system.remove_temporaries(self.file_system.join(self.work_dir, "eval"))
            text = dump_config(self.root).encode()
            self.file_system.write_atomic(
                self.file_system.join(self.work_dir, "config.yaml"), lambda file: file.write(text)
            )

    def _close_files(self) -> None:
        """Close the log, and see that no file waits to be uploaded; an error is noted on that which ends the run, if any."""
        ending = sys.exc_info()[1]
        try:
            if self._log_file is not None:
                self._log_file.close()
            self.file_system.sync()
        except OSError as error:
            message = f"cannot write to {self.work_dir}: {error}"
            if ending is None:
                raise RunError(message) from error
            ending.add_note(message)

    def _progress(self) -> str:
        return f"epoch {self.epoch}, step {self.train_steps}, update {self.total_updates}"

    def _end_if_asked(self) -> None:
        """End where that was asked for: every process after the same step, whichever of them was asked."""
        if self._stop is None and self.deadline is not None and time.monotonic() >= self.deadline:
            self._stop = Stopped(signal.SIGTERM, "the time limit of --max-time is reached")
        asked = self._stop.signum if self._stop is not None else 0
        stop, save = self.agreement.exchange(asked, self._save_asked)
        self._save_agreed = self._save_agreed or save
        if stop:
            raise self._stop or Stopped(stop)

    def _tell_hooks_of(self, error: BaseException) -> None:
        """Let every hook clean up; what fails on the way is noted on `error`, which stays the one that is shown."""
        for name, event in (("on_exception", self.events.on_exception), ("after_solve", self.events.after_solve)):
            try:
                event(*((self, error) if name == "on_exception" else (self,)))
            except Exception as another:  # whatever it is, the first error is the one to report
                notes = getattr(another, "__notes__", [])  # the errors of further hooks are among them
                error.add_note("\n".join([f"then, in {name}: {type(another).__name__}: {another}", *notes]))


def _as_dict(outputs: Any) -> dict[str, Any]:
    """A step's outputs by name: a mapping as it is, nothing as no outputs, anything else as `result`."""
    if outputs is None:
        return {}
    return dict(outputs) if isinstance(outputs, Mapping) else {"result": outputs}


def _as_it_was(value: Any) -> Any:
    """A scalar tensor without a graph as a copy: it may be a buffer or a parameter, which the update changes in place."""
    if isinstance(value, torch.Tensor) and value.grad_fn is None and value.ndim == 0:
        return value.clone()
    return value
