"""How a solver comes to its parts: hooks, data, model, metrics, device, optimizer."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, cast

import torch
from torch import nn

from scepter_core.bus import EventBus, Hook
from scepter_core.config import notices
from scepter_core.data import build_data, iterations_of, key, seed_streams
from scepter_core.distributed import Agreement, Place, Processes, Strategy, join, make_strategy, place_of
from scepter_core.errors import ConfigError, Problem
from scepter_core.io import RunFileSystem
from scepter_core.locations import is_local
from scepter_core.logging import LogFile, make_logger, silent_logger
from scepter_core.metrics import EvalData, NamedMetrics
from scepter_core.optim import build_optimizer, build_scheduler
from scepter_core.optim.state import configured_options
from scepter_core.registry import ENGINES, HOOKS, MODELS
from scepter_core.runconfig import EnvConfig, RunConfig
from scepter_core.sections import MODES, SolverConfig
from scepter_core.solver.counters import Counters
from scepter_core.solver.engine import Engine, NativeEngine
from scepter_core.solver.position import SolverPosition
from scepter_core.solver.sharing import EpochStart


class SolverSetup(SolverPosition):
    """The first half of a solver: everything that is built once. Subclasses override any member."""

    def __init__(self, cfg: SolverConfig, logger: Any = None) -> None:
        """Read the configuration; nothing is built and nothing is written yet.

        Args:
            cfg: the validated section SOLVER.
            logger: where lines go; by default a logger of the run's own, to standard output.
        """
        self.cfg = cfg
        self.root: RunConfig | None = cfg._root
        self.env: EnvConfig = self.root.env if self.root is not None else EnvConfig()
        self.logger = logger if logger is not None else make_logger()
        self.file_system = RunFileSystem(cfg.file_system, self.logger.warning)
        self.work_dir = self.file_system.absolute(cfg.work_dir)
        self.log_file = self.file_system.join(self.work_dir, cfg.log_file) if cfg.log_file else None
        self.resume_from = cfg.resume_from and self.file_system.without_password(cfg.resume_from)
        self.max_epochs, self.max_steps, self.num_folds = cfg.max_epochs, cfg.max_steps, cfg.num_folds
        self.eval_interval = 1 if cfg.eval_interval is None and not cfg.counts_steps else cfg.eval_interval
        self.accumulate_step = cfg.accu_step
        self.processes = Processes()
        self.agreement = Agreement(self.processes)
        self.strategy: Strategy = Strategy(None, processes=self.processes, device=torch.device("cpu"))

        self.bus = EventBus(describe=self.describe_position)
        self.hooks_dict: dict[str, list[Hook]] = {mode: [] for mode in MODES}
        self.datas: dict[str, Any] = {}
        self.model: nn.Module = nn.Module()
        self.metrics: NamedMetrics | None = None
        self.eval_data: EvalData | None = None
        self.optimizer: Any = None
        self.lr_scheduler: Any = None
        self.scaler: torch.amp.GradScaler | None = None
        self.device = torch.device("cpu")
        self.engine: Engine = NativeEngine(self.env, logger=self.logger)
        self.counters = Counters()
        self.mode = "train"
        self._steps_per_epoch = -1
        self.epoch_start = EpochStart()
        self._configured_options: list[dict[str, Any]] = []
        self._log_file: LogFile | None = None

    def describe_position(self) -> str:
        """Where the run stands, for messages: `train epoch 1, iteration 3`."""
        counters = self.counters
        if self.mode == "train" and counters.epoch == 0:
            return "before the first epoch"
        return f"{self.mode} epoch {counters.epoch}, iteration {counters.iter[self.mode] + 1}"

    @property
    def rank(self) -> int:
        """This process's number among those of the run, from 0."""
        return self.processes.rank

    @property
    def world_size(self) -> int:
        """Processes of the run."""
        return self.processes.world_size

    def has(self, mode: str) -> bool:
        """Whether the run has `mode`: its data is there, and MODE does not rule it out."""
        return self.cfg.runs(mode)

    # --- the two calls of a user -----------------------------------------------------------------------------------

    def set_up_pre(self) -> None:
        """Set the process up, the log file, the device, the hooks. First of all, once."""
        _set_determinism(self.env)
        self.device = choose_device(self.env.device, place_of(os.environ))
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.init()  # type: ignore[no-untyped-call]  # before it, there are no generators to seed
        self.processes = join(self.env.backend, self.device, self.env.timeout)
        self.agreement = Agreement(self.processes)
        self.strategy = make_strategy(self.env.strategy, self.processes, self.device, self.logger)
        if self.strategy.sharded and not is_local(self.work_dir):
            raise ConfigError(
                [
                    Problem(
                        "this ENV.STRATEGY writes checkpoints in parts, which takes a folder that all machines see",
                        path="SOLVER.WORK_DIR",
                        found=self.work_dir,
                        expected="a path",
                    )
                ]
            )
        if not self.processes.writes:
            self.logger = silent_logger()
        elif self.log_file is not None:
            self._log_file = LogFile(self.logger, self.log_file, self.file_system)
        for notice in notices(self.root if self.root is not None else self.cfg):
            self.logger.info("%s", notice)
        self._seed_for("construct_hook")
        self.construct_hook()
        self.bus.freeze()
        self._check_hooks()
        if self.env.use_pl:
            self.engine = cast("Engine", ENGINES.get("lightning")(self.env, logger=self.logger))
        self.engine.set_up(self)  # type: ignore[arg-type]  # a solver is a BaseSolver, of which this is the first half

    def _check_hooks(self) -> None:
        hooks = [hook for hooks in self.hooks_dict.values() for hook in hooks]
        if self.resume_from is not None and not any(getattr(hook, "loads_checkpoints", False) for hook in hooks):
            raise ConfigError(
                [
                    Problem(
                        "no hook of the run loads checkpoints",
                        path="SOLVER.RESUME_FROM",
                        found=self.resume_from,
                        hint="list CheckpointHook in TRAIN_HOOKS (pip install scepter-checkpoint)",
                    )
                ]
            )
        if not any(self.has(mode) for mode in MODES):
            only = f" and MODE is {self.cfg.mode}" if self.cfg.mode else ""
            given = [f"{mode.upper()}_DATA" for mode in MODES if getattr(self.cfg, f"{mode}_data") is not None]
            self.logger.warning("nothing to run: of the data there is %s%s", ", ".join(given) or "none", only)
        if not self.has("train"):
            return
        roles = {hook.role for hook in self.hooks_dict["train"]}
        if "backward" not in roles:
            self.logger.warning(
                "no hook in TRAIN_HOOKS computes gradients and steps the optimizer: the weights will not change. "
                "BackwardHook does (pip install scepter-backward)"
            )
        if self.cfg.lr_scheduler is not None and "lr" not in roles:
            self.logger.warning(
                "no hook in TRAIN_HOOKS drives LR_SCHEDULER: the learning rates will not follow it. "
                "LrHook does (pip install scepter-lr)"
            )

    def set_up(self) -> None:
        """Build data, model and metrics, place the model, build the optimizer.

        Each part draws its random numbers under a key of its own: none changes another.
        """
        for step in (self.construct_data, self.construct_model, self.construct_metrics, self.model_to_device):
            self._seed_for(step.__name__)
            step()
        self._steps_per_epoch = iterations_of(self.datas.get("train"))
        self.init_opti()

    def _seed_for(self, part: str) -> None:
        seed_streams(key(self.env.seed, part), self.device)

    # --- the parts -------------------------------------------------------------------------------------------------

    def construct_hook(self) -> None:
        """Build TRAIN_HOOKS, EVAL_HOOKS and TEST_HOOKS into `hooks_dict`, and register them with the bus."""
        for mode in MODES:
            for section in getattr(self.cfg, f"{mode}_hooks"):
                hook = HOOKS.build(section, logger=self.logger)
                self.hooks_dict[mode].append(hook)
                self.bus.register(hook, mode)
        for hook in self.hooks_dict["train"]:
            self.accumulate_step = getattr(hook, "accumulate_step", None) or self.accumulate_step

    def construct_data(self) -> None:
        """Build TRAIN_DATA, EVAL_DATA and TEST_DATA into `datas`, those that the run has."""
        for mode in MODES:
            if self.has(mode):
                self._seed_for(f"construct_data/{mode}")
                self.datas[mode] = build_data(
                    getattr(self.cfg, f"{mode}_data"),
                    mode=mode,
                    seed=self.env.seed,
                    rank=self.rank,
                    world_size=self.world_size,
                    logger=self.logger,
                )

    def construct_model(self) -> None:
        """Build MODEL into `model`, in training mode."""
        if self.cfg.model is None:
            raise ConfigError([Problem("required key is missing", path="SOLVER.MODEL")])
        self.model = MODELS.build(self.cfg.model, logger=self.logger)
        self.model.train()

    def construct_metrics(self) -> None:
        """Build METRICS into `metrics`."""
        self.metrics = NamedMetrics(self.cfg.metrics, self.device, self.logger, self.world_size)  # type: ignore[arg-type]
        if self.cfg.save_eval_data:
            keys = [key for metric in self.cfg.metrics for key in metric.KEYS]
            self.eval_data = EvalData([*keys, *self.cfg.extra_keys])

    def model_to_device(self, tg_model_ins: nn.Module | None = None) -> nn.Module | None:
        """Place a model on the run's device, synchronise and compile it as ENV says.

        Args:
            tg_model_ins: the model; None for the solver's own.

        Returns:
            the configured model; None when it was the solver's own.
        """
        model = tg_model_ins if tg_model_ins is not None else self.model
        if self.env.sync_bn and self.world_size > 1:
            if self.device.type == "cpu":
                raise ConfigError([Problem("needs GPUs: torch has no such layer for the CPU", path="ENV.SYNC_BN", found="true")])
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        if not self.strategy.sharded:
            model = self.engine.place(self, model)  # type: ignore[arg-type]  # as above
        model = self.strategy.prepare(model, trains=self.has("train"))
        if self.env.compile:
            model.compile()  # in place: the names of parameters stay the plain model's
        if tg_model_ins is not None:
            return model
        self.model = model
        return None

    def init_opti(self) -> None:
        """Build `optimizer`, `lr_scheduler` and, for 16-bit floats, `scaler`."""
        if self.cfg.optimizer is None or not self.has("train"):
            return
        self.optimizer = build_optimizer(self.cfg.optimizer, self.model)  # type: ignore[arg-type]
        for group in self.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])  # the base rate, whatever the present rate
        if self.cfg.lr_scheduler is not None:
            self.lr_scheduler = build_scheduler(
                self.cfg.lr_scheduler,  # type: ignore[arg-type]
                self.optimizer,
                planned_updates=self.planned_updates,
            )
        self._configured_options = configured_options(self.optimizer)
        if str(self.cfg.train_precision) == "16":
            if self.strategy.sharded:
                raise ConfigError(
                    [
                        Problem(
                            "the loss scaler of 16-bit floats does not see the gradients of other processes",
                            path="SOLVER.TRAIN_PRECISION",
                            found="16",
                            expected="bf16 or 32 with this ENV.STRATEGY",
                        )
                    ]
                )
            self.scaler = torch.amp.GradScaler(self.device.type)


def choose_device(name: str, place: Place) -> torch.device:
    """The device that ENV.DEVICE means to the process at `place`: with several on a machine, each its own GPU.

    Raises:
        ConfigError: it is not there.
    """
    if name == "auto":
        mps = torch.backends.mps.is_available() and place.world_size == 1
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    device = torch.device(name)
    several = place.local_world_size > 1
    index = place.local_rank if device.index is None else device.index
    problem = None
    if device.type == "cuda" and several and device.index is not None:
        problem = f"the {place.local_world_size} processes of this machine would share one GPU", "cuda, cpu or auto"
    elif device.type == "cuda" and index >= torch.cuda.device_count():
        wanted = f"the {place.local_world_size} processes of this machine need a GPU each" if several else "there is no such device"
        problem = wanted, f"one of {torch.cuda.device_count()} CUDA devices, cpu, mps, or auto"
    elif device.type == "mps" and not torch.backends.mps.is_available():
        problem = "there is no such device", "cpu or auto"
    if problem is not None:
        raise ConfigError([Problem(problem[0], path="ENV.DEVICE", found=name, expected=problem[1])])
    return torch.device("cuda", index) if device.type == "cuda" else device


def _set_determinism(env: EnvConfig) -> None:
    if env.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it in deterministic mode
    if torch.are_deterministic_algorithms_enabled() != env.deterministic:
        torch.use_deterministic_algorithms(env.deterministic)
    cudnn_deterministic = env.cudnn_deterministic
    torch.backends.cudnn.deterministic = env.deterministic if cudnn_deterministic is None else cudnn_deterministic
    if env.cudnn_benchmark is not None:
        torch.backends.cudnn.benchmark = env.cudnn_benchmark
    if not sys.warnoptions:
        # torch's advice on the order of step() calls is for those who make them; here the hooks do.
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*optimizer.step.*")
