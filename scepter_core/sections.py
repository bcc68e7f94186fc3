"""The sections of a configuration that are the engine's own, as pydantic models.

A key is the field's name in upper case. What a NAME brings (a dataset's, an optimizer's, a hook's own keys) is joined
to these by the registry. Importing this module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, Literal

from annotated_types import Gt
from pydantic import (
    AfterValidator,
    AllowInfNan,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)

from scepter_core import locations
from scepter_core.config import Named, NamedThing, Section

MODES = ("train", "eval", "test")
Mode = Literal["train", "eval", "test"]
Location = Annotated[str, AfterValidator(locations.check)]  # a path, or a URL whose driver is installed
Rate = Annotated[float, Gt(0), AllowInfNan(False)]


class HookConfig(Named):
    """The keys of every hook."""

    priority: int = Field(0, description="Hooks of the same event run in ascending priority.")


class FileSystemConfig(Section):
    """One file system of FILE_SYSTEM: a protocol with the options of its driver, or SCEPTER's name for the local one."""

    @classmethod
    def model_for(cls, keys: Container[str]) -> type[FileSystemConfig]:
        """SCEPTER's sections have a NAME."""
        if cls is not FileSystemConfig:
            return cls
        return LocalFsConfig if "NAME" in keys and "PROTOCOL" not in keys else RemoteFsConfig


class LocalFsConfig(FileSystemConfig):
    """The local files, which SCEPTER calls LocalFs. They need no section."""

    taken_with_notice = MappingProxyType(
        {
            **dict.fromkeys(("TEMP_DIR", "AUTO_CLEAN"), "local files are used where they are, and not copied"),
            **dict.fromkeys(
                ("ENDPOINT", "BUCKET", "OSS_AK", "OSS_SK", "PREFIX", "WRITABLE", "CHECK_WRITABLE", "RETRY_TIMES"),
                "it is a remote file system's",
            ),
        }
    )

    name: str

    @field_validator("name")
    @classmethod
    def _is_local(cls, name: str) -> str:
        if name != "LocalFs":
            instead = _INSTEAD_OF.get(name, "PROTOCOL: and the name that fsspec has for it")
            raise ValueError(
                f"{name} is SCEPTER's own; here the files of a URL are reached through fsspec, by a section with {instead} "
                "(docs/file-systems.md); local files (LocalFs) need none"
            )
        return name


_INSTEAD_OF = {
    "AliyunOssFs": "PROTOCOL: oss, KEY, SECRET and ENDPOINT",
    "HttpFs": "PROTOCOL: https",
    "HuggingfaceFs": "PROTOCOL: hf and TOKEN",
}


class RemoteFsConfig(FileSystemConfig):
    """A protocol of URLs, and beside it the parameters of its fsspec driver, in upper case."""

    model_config = ConfigDict(extra="allow")
    holds_secrets = True

    protocol: str = Field(min_length=1, description="The part of a URL before `://`: s3, gs, sftp, memory, …")
    retry_times: int = Field(3, ge=0, description="How often a call that failed is made again.")

    @property
    def options(self) -> dict[str, Any]:
        """What the driver is made with: those keys that have a value."""
        return {key.lower(): value for key, value in (self.model_extra or {}).items() if value is not None}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """What `repr` shows: no secrets."""
        return locations.hidden(dict(super().__repr_args__())).items()

    @field_validator("protocol")
    @classmethod
    def _has_a_driver(cls, protocol: str) -> str:
        protocol = protocol.removesuffix("://").lower()
        locations.driver_of(protocol)
        return protocol

    @model_validator(mode="after")
    def _options_are_the_drivers(self) -> RemoteFsConfig:
        wrong = locations.unknown_option(locations.driver_of(self.protocol), self.options)
        if wrong is not None:
            raise ValueError(wrong)
        masked = locations.masked(self.model_extra or {})
        if masked:
            raise ValueError(f"{masked} was masked when this was written; write it as ${{env:NAME}}")
        return self


FileSystems = FileSystemConfig | list[FileSystemConfig] | None


class LoaderConfig(Named):
    """The keys of TRAIN_DATA, EVAL_DATA and TEST_DATA beside those of the dataset that NAME names."""

    batch_size: PositiveInt = Field(1, description="Samples in a batch, of each process.")
    num_workers: int = Field(0, ge=0, description="Worker processes that make batches; 0: the run's own process.")
    pin_memory: bool = Field(False, description="Copy batches to page-locked memory first (accelerators).")
    shuffle: bool | None = Field(None, description="A new order each epoch. Default: yes for training, no otherwise.")
    drop_last: bool = Field(False, description="Leave out a last batch that is smaller than BATCH_SIZE.")
    sampler: Annotated[Section | None, NamedThing("samplers")] = Field(
        None, description="The sampler that gives the order of the samples, in place of the engine's own."
    )
    collate: Callable[..., Any] | None = Field(
        None, description="`module:function` that joins samples to a batch. Default: torch's."
    )
    persistent_workers: bool = Field(False, description="Keep the worker processes between epochs.")
    prefetch_factor: PositiveInt | None = Field(None, description="Batches that each worker makes ahead.")
    file_system: FileSystems = Field(None, description="As SOLVER.FILE_SYSTEM.")

    @model_validator(mode="after")
    def _workers_keys_need_workers(self) -> LoaderConfig:
        if self.num_workers == 0 and (self.persistent_workers or self.prefetch_factor is not None):
            raise ValueError("PERSISTENT_WORKERS and PREFETCH_FACTOR need NUM_WORKERS >= 1")
        return self


class ParamGroupConfig(Section):
    """One entry of PARAM_GROUPS: the parameters it takes, and any key of the optimizer that differs for them."""

    model_config = ConfigDict(extra="allow")

    pattern: str | list[str] = Field(description="Shell patterns of parameter names: `*.bias`, `norm*`, …")
    learning_rate: Rate | None = Field(None, description="Default: the optimizer's.")


class OptimizerKeys(Named):
    """The keys of OPTIMIZER beside those of the class that NAME names (its parameters, upper case)."""

    fused: bool | Literal["auto"] | None = Field(
        "auto", description="Use the fused implementation: yes, no, or where it applies (auto)."
    )
    param_groups: list[ParamGroupConfig] = Field(
        [], description="Parameter groups; a parameter goes to the first entry that fits, else to group 0."
    )


class SchedulerKeys(Named):
    """The keys of LR_SCHEDULER beside those of the class that NAME names (its parameters, upper case)."""

    taken_with_notice = MappingProxyType(
        dict.fromkeys(("LAST_EPOCH", "LAST_STEP"), "where the schedule stands follows from where the run stands")
    )

    unit: Literal["epoch", "update"] = Field("epoch", description="What the scheduler's own numbers count.")
    monitor: str | None = Field(None, description="The epoch metric that ReduceLROnPlateau follows.")

    @model_validator(mode="after")
    def _is_made_of_parts_that_fit(self) -> SchedulerKeys:
        """Of a scheduler that is made of others (SequentialLR, ChainedScheduler)."""
        parts: list[SchedulerKeys] | None = self.get("SCHEDULERS")
        if parts is None:
            return self
        milestones = self.get("MILESTONES", [])
        if not parts:
            raise ValueError("SCHEDULERS must have an entry at least")
        if "MILESTONES" in self and len(milestones) != len(parts) - 1:
            raise ValueError(f"{len(parts)} SCHEDULERS need {len(parts) - 1} MILESTONES, where the later ones begin")
        if any(end <= begin for begin, end in pairwise([0, *milestones])):
            raise ValueError("MILESTONES must rise, the first from 1 on")
        for part in parts:
            if part.name in ("ReduceLROnPlateau", "ChainedScheduler"):
                raise ValueError(f"{part.name} has no clock of its own: it cannot be one of SCHEDULERS")
            if "unit" in part.model_fields_set and part.unit != self.unit:
                raise ValueError("the UNIT of SCHEDULERS is that of the whole: give it there")
            part.take_unit(self.unit)
        return self

    def take_unit(self, unit: Literal["epoch", "update"]) -> None:
        """Count in `unit`, with every scheduler that this one is made of."""
        self.unit = unit
        for part in self.get("SCHEDULERS", []):
            part.take_unit(unit)


class MetricKeys(Named):
    """The keys of an entry of METRICS beside those of the class that NAME names."""

    keys: list[str] = Field(
        description="What the metric is given, in this order: entries of the outputs, else of the batch; dotted paths."
    )
    modes: list[Mode] | None = Field(
        None, description="Where it is computed. Default: eval and test, and train where the entries are there."
    )
    log_name: str | None = Field(None, description="Its name among the metrics. Default: made from NAME.")


class SolverConfig(Named):
    """The keys of SOLVER that every solver has."""

    taken_with_notice = MappingProxyType(
        {
            "DO_FINAL_EVAL": "METRICS are computed in every eval",
            "RESCALE_LR": "LEARNING_RATE is the rate, whatever the batch size",
        }
    )

    mode: Mode | None = Field(None, description="Limit the run to one mode.")
    work_dir: Location = Field(min_length=1, description="Folder of everything that the run writes; a path or a URL.")
    log_file: str | None = Field("std_log.txt", description="The log, in WORK_DIR; null: none.")
    file_system: FileSystems = Field(
        None, description="Options of the protocols of URLs, a section or a list of them."
    )
    resume_from: Location | None = Field(None, description="A checkpoint to go on from, or `auto`: the newest whole one.")
    max_epochs: int = Field(-1, ge=-1, description="Training epochs in all; -1: no limit.")
    max_steps: int = Field(-1, ge=-1, description="Training steps in all; -1: no limit.")
    accu_step: PositiveInt = Field(1, description="Micro-batches (steps) of one update.")
    num_folds: PositiveInt = Field(1, description="Epochs in one pass of the loader.")
    eval_interval: int | None = Field(
        None, description="Epochs (steps where only MAX_STEPS limits the run) between evals; <= 0: never. Default: 1."
    )
    test_interval: int = Field(0, description="As EVAL_INTERVAL, for the test; <= 0: once, at the end.")
    train_precision: Literal[32, "32", "bf16", 16, "16"] = Field(32, description="Autocast: 32 is none.")
    extra_keys: list[str] = Field(
        [], description="Entries of the outputs or the batch that SAVE_EVAL_DATA collects beside the metrics' KEYS."
    )
    save_eval_data: bool = Field(
        False, description="Write what the metrics of an eval are given to WORK_DIR/eval/{epoch}.safetensors."
    )
    train_data: Annotated[Section | None, NamedThing("datasets")] = None
    eval_data: Annotated[Section | None, NamedThing("datasets")] = None
    test_data: Annotated[Section | None, NamedThing("datasets")] = None
    model: Annotated[Section | None, NamedThing("models")] = None
    optimizer: Annotated[Section | None, NamedThing("optimizers")] = None
    lr_scheduler: Annotated[Section | None, NamedThing("lr_schedulers")] = None
    metrics: Annotated[list[Section], NamedThing("metrics")] = []
    train_hooks: Annotated[list[Section], NamedThing("hooks")] = []
    eval_hooks: Annotated[list[Section], NamedThing("hooks")] = []
    test_hooks: Annotated[list[Section], NamedThing("hooks")] = []

    @field_validator("work_dir", "resume_from", "log_file")
    @classmethod
    def _is_a_path(cls, path: str | None) -> str | None:
        if path is not None and "\0" in path:
            raise ValueError("must be a path, which has no NUL character")
        return path

    @field_validator("log_file")
    @classmethod
    def _stays_in_work_dir(cls, path: str | None) -> str | None:
        file = PurePath(path or "std_log.txt")
        if file.is_absolute() or ".." in file.parts or not file.name:
            raise ValueError("must be a file in WORK_DIR: a relative path without ..")
        return path

    @field_validator("file_system")
    @classmethod
    def _has_each_protocol_once(cls, value: FileSystems) -> FileSystems:
        named = [config.protocol for config in value if isinstance(config, RemoteFsConfig)] if isinstance(value, list) else []
        for place, protocol in enumerate(named):
            if any(locations.driver_of(protocol) is locations.driver_of(other) for other in named[:place]):
                raise ValueError(f"a second section of the protocol {protocol}; of each there is one")
        return value

    @model_validator(mode="after")
    def _training_has_an_end(self) -> SolverConfig:
        if self.trains and self.max_epochs <= 0 and self.max_steps <= 0:
            raise ValueError("to train, MAX_EPOCHS or MAX_STEPS must be >= 1")
        return self

    @property
    def counts_steps(self) -> bool:
        """Whether intervals count steps: nothing but MAX_STEPS limits the run."""
        return self.max_steps > 0 and self.max_epochs <= 0

    @property
    def trains(self) -> bool:
        """Whether the run has a training part."""
        return self.train_data is not None and self.mode in (None, "train")

    def runs(self, mode: str) -> bool:
        """Whether the run has data for `mode`, is not limited to another one, and ever comes to it."""
        if mode == "eval" and self.trains and self.eval_interval is not None and self.eval_interval <= 0:
            return False
        return getattr(self, f"{mode}_data") is not None and self.mode in (None, mode)
