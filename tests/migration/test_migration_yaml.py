"""YAML files and classes of SCEPTER's shape: the classes with other imports, the YAML as it is."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import torch
import yaml

import scepter_core
from scepter_core import load_config
from scepter_core.cli import main

PAGE = Path(__file__).parents[2] / "docs/migrating-from-scepter.md"

CLASSES = """
import torch
from scepter.modules.data.dataset import DATASETS
from scepter.modules.model.registry import MODELS
from scepter.modules.solver.hooks.hook import Hook
from scepter.modules.solver.hooks.registry import HOOKS
from scepter.modules.solver.registry import SOLVERS
from scepter.modules.solver.train_val_solver import TrainValSolver
from scepter.modules.utils.config import dict_to_yaml


@DATASETS.register_class()
class ToyDataset(torch.utils.data.Dataset):
    para_dict = {"MODE": {"value": "train", "description": "the split"}, "TRANSFORMS": []}

    def __init__(self, cfg, logger=None):
        super().__init__()
        self.mode = cfg.MODE
        self.names = [transform.NAME for transform in cfg.get("TRANSFORMS", [])]
        self.scale = 1.0
        for transform in cfg.TRANSFORMS:
            if transform.NAME == "Scale":
                self.scale *= transform.get("FACTOR", 1.0)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"img": torch.full((3,), float(index)) * self.scale, "label": torch.tensor(index % 2)}


@MODELS.register_class()
class ToyClassifier(torch.nn.Module):
    para_dict = {"BACKBONE": {}, "HEAD": {}}

    def __init__(self, cfg, logger=None):
        super().__init__()
        self.backbone = MODELS.build(cfg.BACKBONE, logger=logger)
        self.head = torch.nn.Linear(cfg.BACKBONE.WIDTH, cfg.HEAD.NUM_CLASSES)
        self.dropout = cfg.HEAD.get("DROPOUT_RATE", 0.25)
        self.has_neck = cfg.have("NECK")
        self.smoothing = cfg.LOSS.get("LABEL_SMOOTHING", 0.0)

    def forward(self, img, label):
        logits = self.head(self.backbone(img))
        loss = torch.nn.functional.cross_entropy(logits, label, label_smoothing=self.smoothing)
        return {"loss": loss, "logits": logits}


@MODELS.register_class()
class ToyBackbone(torch.nn.Module):
    def __init__(self, cfg, logger=None):
        super().__init__()
        self.layer = torch.nn.Linear(3, cfg.WIDTH)

    def forward(self, img):
        return torch.relu(self.layer(img))


@HOOKS.register_class()
class ToyRecordHook(Hook):
    para_dict = [{
        "PRIORITY": {"value": 400, "description": "the priority for processing!"},
        "FILE": {"value": "record.jsonl", "description": "where to"},
    }]

    def __init__(self, cfg, logger=None):
        super(ToyRecordHook, self).__init__(cfg, logger=logger)
        self.priority = cfg.get("PRIORITY", 400)
        self.file = cfg.get("FILE", "record.jsonl")
        self.rows = []

    def after_iter(self, solver):
        weight = float(solver.model.head.bias.detach()[0])
        rate = solver.collect_log_vars()["pg0_lr"] if solver.is_train_mode else None
        self.rows.append((solver.mode, solver.epoch, solver.total_iter, rate, weight))

    def after_solve(self, solver):
        import json
        with open(f"{solver.work_dir}/{self.file}", "w") as file:
            json.dump(self.rows, file)

    @staticmethod
    def get_config_template():
        return dict_to_yaml("hook", __class__.__name__, ToyRecordHook.para_dict, set_name=True)


@SOLVERS.register_class()
class ToySolver(TrainValSolver):
    para_dict = {"TASK_KEY": {"value": 1, "description": "of this task"}}
    para_dict.update(TrainValSolver.para_dict if hasattr(TrainValSolver, "para_dict") else {})

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger=logger)
        self.task_key = cfg.get("TASK_KEY", 1)
        self.sample_steps = cfg.SAMPLE_ARGS.SAMPLE_STEPS if cfg.have("SAMPLE_ARGS") else 0
"""

CONFIG = """\
ENV:
  USE_PL: False
  BACKEND: nccl
  SEED: 2023
#
SOLVER:
  # NAME DESCRIPTION:  TYPE:  default: 'TrainValSolver'
  NAME: TrainValSolver
  RESUME_FROM:
  MAX_EPOCHS: 2
  NUM_FOLDS: 1
  ACCU_STEP: 1
  WORK_DIR: ./work/toy
  LOG_FILE: std_log.txt
  FILE_SYSTEM:
    - NAME: "LocalFs"
      TEMP_DIR: ./cache
  EVAL_INTERVAL: 1
  DO_FINAL_EVAL: True
  SAVE_EVAL_DATA: False
  EXTRA_KEYS: [ ]
  TEST_HOOKS:
  TEST_DATA:
  TRAIN_DATA:
    NAME: ToyDataset
    MODE: train
    PIN_MEMORY: False
    BATCH_SIZE: 4
    NUM_WORKERS: 0
    SAMPLER:
    TRANSFORMS:
      - NAME: Scale
        FACTOR: 0.5
        INPUT_KEY: [ 'img' ]
      - # NAME DESCRIPTION:
        NAME: Select
        KEYS: ["img", "label"]
        META_KEYS: []
  EVAL_DATA:
    NAME: ToyDataset
    MODE: test
    BATCH_SIZE: 4
    FILE_SYSTEM:
      NAME: LocalFs
    TRANSFORMS:
      -
        NAME: Select
        KEYS: ["img", "label"]
  MODEL:
    NAME: ToyClassifier
    PRETRAINED_MODEL:
    BACKBONE:
      NAME: ToyBackbone
      WIDTH: 4
      PRETRAINED: false
    NECK:
    HEAD:
      NAME: ClassifierHead
      NUM_CLASSES: 2
      DROPOUT_RATE:
    LOSS:
      NAME: CrossEntropy
      LABEL_SMOOTHING: 0.1
  OPTIMIZER:
    NAME: SGD
    LEARNING_RATE: 1e-2
    MOMENTUM: 0.9
    DAMPENING: 0
    WEIGHT_DECAY: 5e-4
    NESTEROV: False
  LR_SCHEDULER:
    NAME: CosineAnnealingLR
    T_MAX: 2.0
    ETA_MIN: 0
    LAST_EPOCH: -1
  METRICS:
    - # NAME DESCRIPTION:  TYPE:  default: 'AccuracyMetric'
       NAME: AccuracyMetric
       TOPK: 1
       KEYS: ["logits", "label"]
  TRAIN_HOOKS:
    -
      NAME: BackwardHook
      PRIORITY: 10000
      GRADIENT_CLIP: 1
    - NAME: LrHook
      WARMUP_FUNC: null
    -
      NAME: LogHook
      LOG_INTERVAL: 50
    - NAME: ToyRecordHook
      FILE:
    -
      NAME: CheckpointHook
      INTERVAL: 1
      SAVE_BEST: True
      SAVE_BEST_BY: '+acc'
      PUSH_TO_HUB: False
      HUB_MODEL_ID:
  EVAL_HOOKS:
    -
      NAME: ProbeDataHook
      PROB_INTERVAL: 100
      SAVE_IMAGE_POSTFIX: jpg
META:
  AUTHOR: someone
  PARAS:
    - 1
    - {A: }
"""


def ported(source: str) -> str:
    """The source with the imports of the page's table."""
    table = PAGE.read_text(encoding="utf-8").split("## Imports", 1)[1].split("\n## ", 1)[0]
    for old, new in re.findall(r"^\| `(from .*?)` \| `(from .*?)` \|$", table, re.MULTILINE):
        source = source.replace(old + "\n", new + "\n")
    assert "scepter.modules" not in source
    return source


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    file = tmp_path_factory.mktemp("ported") / "migration_classes.py"
    file.write_text(ported(CLASSES), encoding="utf-8")
    return file


@pytest.fixture
def yaml_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cfg.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    return file


def test_the_solver_section_loads_unchanged(classes, yaml_file):
    config = load_config(yaml_file, plugins=[str(classes)])
    solver = config.SOLVER
    assert (solver.RESUME_FROM, solver.OPTIMIZER.WEIGHT_DECAY, solver.LR_SCHEDULER.T_MAX) == (None, 0.0005, 2)
    assert solver.MODEL.HEAD.get("DROPOUT_RATE", 0.3) == 0.3
    assert not solver.MODEL.have("NECK")
    assert [entry.NAME for entry in solver.TRAIN_DATA.TRANSFORMS] == ["Scale", "Select"]
    assert (solver.TEST_DATA, solver.TEST_HOOKS) == (None, [])
    assert config.META == {"AUTHOR": "someone", "PARAS": [1, {"A": None}]}
    dumped = yaml.safe_load(scepter_core.dump_config(config))
    assert dumped["META"] == config.META


def test_it_runs_with_the_classes_written_for_scepter(classes, yaml_file, tmp_path, capsys):
    solver = scepter_core.run(yaml_file, plugins=[str(classes)])
    rows = json.loads((tmp_path / "work/toy/record.jsonl").read_text())
    by_step = [["train", 1, 0, 0.01], ["train", 1, 1, 0.01], ["train", 2, 2, 0.005], ["train", 2, 3, 0.005]]
    assert [row[:4] for row in rows] == by_step
    weights = [row[4] for row in rows]
    assert len(set(weights)) == 4  # each before the update of its step: BackwardHook comes last
    assert weights[-1] != solver.model.head.bias[0].item()
    saved = torch.load(tmp_path / "work/toy/checkpoints/ldm_step-2.pth", weights_only=True)
    assert float(saved["model"]["head.bias"][0]) == weights[2]  # and the file has it after that
    assert {"ldm_step-2.pth", "ldm_step-4.pth", "ldm_step-best.pth"} == {
        path.name for path in (tmp_path / "work/toy/checkpoints").iterdir()
    }
    said = capsys.readouterr().out
    taken = re.findall(r"INFO +(\S+) is taken and does nothing", said)
    assert sorted(taken) == [
        "SOLVER.DO_FINAL_EVAL",
        "SOLVER.EVAL_HOOKS[0].SAVE_IMAGE_POSTFIX",
        "SOLVER.FILE_SYSTEM[0].TEMP_DIR",
        "SOLVER.LR_SCHEDULER.LAST_EPOCH",
        "SOLVER.TRAIN_HOOKS[4].PUSH_TO_HUB",
    ]
    assert {"loss", "acc"} == set(solver.epoch_outputs["eval"])


def test_the_written_configuration_repeats_the_run(classes, yaml_file, tmp_path):
    first = scepter_core.run(yaml_file, plugins=[str(classes)])
    again = scepter_core.run(tmp_path / "work/toy/config.yaml", ["SOLVER.WORK_DIR=./work/again"])
    assert all(torch.equal(value, again.model.state_dict()[name]) for name, value in first.model.state_dict().items())
    assert again.root.META == first.root.META


def test_a_solver_written_for_scepter_takes_its_own_keys(classes, yaml_file):
    sample = "SOLVER.SAMPLE_ARGS={SAMPLER: ddim, SAMPLE_STEPS: 20, GUIDE_RESCALE: }"
    overrides = ["SOLVER.NAME=ToySolver", "SOLVER.TASK_KEY=3", sample, "SOLVER.MAX_EPOCHS=1"]
    solver = scepter_core.run(yaml_file, overrides, plugins=[str(classes)])
    assert (type(solver).__name__, solver.task_key, solver.sample_steps, solver.train_steps) == ("ToySolver", 3, 20, 2)


def test_templates_are_yaml(classes, yaml_file):
    load_config(yaml_file, plugins=[str(classes)])
    text = scepter_core.HOOKS.get("ToyRecordHook").get_config_template()
    assert text == (
        "HOOK:\n"
        "  - NAME: ToyRecordHook\n"
        "    # the priority for processing!\n"
        "    PRIORITY: 400\n"
        "    # where to\n"
        "    FILE: record.jsonl\n"
    )


def test_a_template_of_nested_keys():
    described = {
        "ENV": {"description": "the process", "SEED": {"value": 0, "description": "a\nseed"}, "SIZE": {"value": None}},
        "BETAS": {"value": [0.9, 0.999], "description": ""},
        "TEXT": {"value": "a: b", "description": "quoted"},
        "HOOKS": [{"NAME": {"value": "LogHook"}, "DEEP": {"X": {"value": True}}}],
        "MODEL": {},
        "LEFT_OUT": {"value": 1},
    }
    text = scepter_core.dict_to_yaml("solver", "TrainValSolver", described, set_name=True, exclude_keys={"LEFT_OUT"})
    assert yaml.safe_load(text) == {
        "SOLVER": {
            "NAME": "TrainValSolver",
            "ENV": {"SEED": 0, "SIZE": None},
            "BETAS": [0.9, 0.999],
            "TEXT": "a: b",
            "HOOKS": [{"NAME": "LogHook", "DEEP": {"X": True}}],
            "MODEL": None,
        }
    }
    assert "# the process\n" in text
    assert "# a seed\n" in text


def test_a_run_without_backward_warns_before_anything_is_built(classes, yaml_file, capsys, monkeypatch):
    started = time.monotonic()
    said = {}

    def construct_data(self):
        said["before data"] = (capsys.readouterr().out, time.monotonic() - started)

    monkeypatch.setattr(scepter_core.TrainValSolver, "construct_data", construct_data)
    solver = load_config(
        yaml_file, ["SOLVER.TRAIN_HOOKS=[{NAME: LogHook}]", "SOLVER.LR_SCHEDULER=null"], [str(classes)]
    )
    built = scepter_core.SOLVERS.build(solver.SOLVER)
    built.set_up_pre()
    built.construct_data()
    out, seconds = said["before data"]
    assert "WARNING no hook in TRAIN_HOOKS computes gradients and steps the optimizer" in out
    assert seconds < 1


@pytest.mark.parametrize("name", ["ModelscopeFs", "AliyunOssFs", "HuggingfaceFs", "HttpFs"])
def test_a_remote_file_system_says_what_to_do(classes, yaml_file, capsys, name):
    override = f"SOLVER.FILE_SYSTEM={{NAME: {name}, BUCKET: b, OSS_AK: k}}"
    assert main(["validate", str(yaml_file), "-p", str(classes), override]) == 2
    err = capsys.readouterr().err
    assert f"SOLVER.FILE_SYSTEM.NAME: {name} is SCEPTER's own" in err
    assert "through fsspec, by a section with PROTOCOL: " in err


# What SCEPTER's templates write for its optimizers and schedulers, empty keys and floats for whole numbers included.
OPTIMIZERS = """
- {NAME: SGD, LEARNING_RATE: 0.1, MOMENTUM: 0, DAMPENING: 0, WEIGHT_DECAY: 0, NESTEROV: False}
- {NAME: Adadelta, LEARNING_RATE: 1.0, RHO: 0, EPS: 1e-6, WEIGHT_DECAY: 0}
- {NAME: Adagrad, LEARNING_RATE: 1e-2, EPS: 1e-10, WEIGHT_DECAY: 0, INITIAL_ACCUMULATOR_VALUE: 0}
- {NAME: Adam, LEARNING_RATE: 1e-2, BETAS: [0.9, 0.999], EPS: 1e-6, WEIGHT_DECAY: 0, AMSGRAD: False}
- {NAME: Adamax, LEARNING_RATE: 2e-3, BETAS: [0.9, 0.999], EPS: 1e-8, WEIGHT_DECAY: 0}
- {NAME: AdamW, LEARNING_RATE: 1e-3, BETAS: [0.9, 0.999], EPS: 1e-8, WEIGHT_DECAY: 5e-4, AMSGRAD: False}
- {NAME: ASGD, LEARNING_RATE: 1e-2, LAMBD: 1e-4, ALPHA: 0.75, T0: 1e6, WEIGHT_DECAY: 0}
- {NAME: RMSprop, LEARNING_RATE: 1e-2, ALPHA: 0.99, EPS: 1e-8, WEIGHT_DECAY: 0, MOMENTUM: 0, CENTERED: False}
- {NAME: Rprop, LEARNING_RATE: 1e-2, ETAS: [0.5, 1.2], STEP_SIZES: [1e-6, 50]}
"""
SCHEDULERS = """
- {NAME: StepLR, STEP_SIZE: 1, GAMMA: 0.1, LAST_EPOCH: -1}
- {NAME: MultiStepLR, MILESTONES: [10000, 20000], GAMMA: 0.1, LAST_EPOCH: -1}
- {NAME: ExponentialLR, GAMMA: 0.1, LAST_EPOCH: -1}
- {NAME: CosineAnnealingLR, T_MAX: 1.0, ETA_MIN: 0, LAST_EPOCH: -1}
- {NAME: CosineAnnealingWarmRestarts, T_0: 1.0, T_MULT: 1.0, ETA_MIN: 1.0, LAST_EPOCH: -1}
- {NAME: CyclicLR, BASE_LR: 0.1, MAX_LR: 0.5, STEP_SIZE_UP: 2000, STEP_SIZE_DOWN: , MODE: triangular, GAMMA: 1,
   SCALE_FN: , SCALE_MODE: cycle, CYCLE_MOMENTUM: True, BASE_MOMENTUM: 0.8, MAX_MOMENTUM: 0.9, LAST_EPOCH: -1}
- {NAME: ReduceLROnPlateau, MODE: min, FACTOR: 0.1, PATIENCE: 10, THRESHOLD: 1e-4, THRESHOLD_MODE: rel, COOLDOWN: 0,
   MIN_LR: 0, EPS: 1e-8, MONITOR: loss}
- {NAME: LinoPolyLR, END_EPOCH: 1, POWER: 1, LAST_EPOCH: -1}
- {NAME: WarmupToConstantLR, WARMUP_STEPS: 10000}
- {NAME: StepAnnealingLR, WARMUP_STEPS: 0, TOTAL_STEPS: 10000000, DECAY_MODE: cosine, MIN_LR: 0.0, LAST_STEP: -1}
"""


def _entries(text):
    """The entries of the list as they are written, by name."""
    entries = [" ".join(entry.split()) for entry in text.strip().removeprefix("- ").split("\n- ")]
    return {re.search(r"NAME: (\w+)", entry)[1]: entry for entry in entries}


@pytest.mark.parametrize("name", _entries(OPTIMIZERS))
def test_its_optimizers_load_with_what_its_templates_write(classes, yaml_file, name):
    override = f"SOLVER.OPTIMIZER={_entries(OPTIMIZERS)[name]}"
    solver = scepter_core.run(yaml_file, [override, "SOLVER.MAX_EPOCHS=1"], plugins=[str(classes)])
    assert (type(solver.optimizer), solver.total_updates) == (getattr(torch.optim, name), 2)


@pytest.mark.parametrize("name", _entries(SCHEDULERS))
def test_its_schedulers_load_with_what_its_templates_write(classes, yaml_file, name):
    override = f"SOLVER.LR_SCHEDULER={_entries(SCHEDULERS)[name]}"
    solver = scepter_core.run(yaml_file, [override, "SOLVER.MAX_EPOCHS=1"], plugins=[str(classes)])
    assert (type(solver.lr_scheduler).__name__, solver.total_updates) == (name, 2)
