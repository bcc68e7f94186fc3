"""The core alone, and each plugin alone with the core: from wheels, in environments that see nothing of this checkout."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
each_plugin = pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)

TASK = """
import torch
from scepter_core import DATASETS, MODELS

@MODELS.register_class()
class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        print("step", float(x.sum()), float(self.w.detach()))
        return {"loss": self.w * x.mean()}

@DATASETS.register_class()
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": torch.tensor(float(index))}
"""
CONFIG = """
PLUGINS: [./task.py]
ENV: {DEVICE: cpu}
SOLVER:
  NAME: TrainValSolver
  WORK_DIR: run
  MAX_EPOCHS: 2
  TRAIN_DATA: {NAME: Numbers, BATCH_SIZE: 2, SHUFFLE: false}
  EVAL_DATA: {NAME: Numbers, BATCH_SIZE: 4}
  MODEL: {NAME: Line}
  OPTIMIZER: {NAME: SGD, LEARNING_RATE: 1.0}
"""


def is_ours(name: str) -> bool:
    return (
        name.lower()
        .removeprefix("_editable_impl_")
        .removeprefix("__editable__")
        .lstrip("_.")
        .startswith("scepter")
    )


def call(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run without anything in the environment that would let this checkout, or the outer test run, shine through."""
    leaks = ("PYTHON", "PYTEST", "COV_", "COVERAGE", "VIRTUAL_ENV", "PIP_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(leaks)}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Path:
    """A folder with the wheels of the core and of every plugin."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    call(sys.executable, "-m", "pip", "wheel", *options, "-w", folder, ROOT, *PLUGINS, cwd=folder)
    return folder


@pytest.fixture(scope="session")
def third_party(tmp_path_factory) -> Path:
    """What is installed here, without anything of ours."""
    folder = tmp_path_factory.mktemp("third-party")
    for place in dict.fromkeys(
        [*site.getsitepackages(), *(path for path in sys.path if path.endswith("site-packages"))]
    ):
        for entry in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / entry.name
            if not (is_ours(entry.name) or entry.suffix == ".pth" or link.exists()):
                link.symlink_to(entry)
    return folder


@pytest.fixture
def environment(wheels, third_party, tmp_path):
    """environment(distribution, …) → python of a new environment with these of ours, and no others."""

    def make(*distributions: str) -> Path:
        folder = tmp_path / "environment"
        call(sys.executable, "-m", "venv", "--without-pip", folder, cwd=tmp_path)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "_third_party.pth").write_text(f"{third_party}\n", encoding="utf-8")
        python = folder / "bin" / "python"
        options = [
            "--quiet",
            "--no-deps",
            "--no-index",
            "--disable-pip-version-check",
            "--find-links",
            wheels,
        ]
        call(
            sys.executable, "-m", "pip", "--python", python, "install", *options, *distributions, cwd=tmp_path
        )
        return python

    return make


def test_wheels_hold_their_package_and_nothing_else(wheels):
    found = {path.name.split("-")[0]: path for path in wheels.iterdir()}
    assert found.keys() == {"scepter_core", *(folder.name.replace("-", "_") for folder in PLUGINS)}
    for module, path in found.items():
        names = zipfile.ZipFile(path).namelist()
        tops = {name.split("/")[0] for name in names}
        assert tops == {module, path.name.removesuffix("-py3-none-any.whl") + ".dist-info"}
        assert f"{module}/py.typed" in names
        assert not any(
            "test" in name.split("/") or "tests" in name.split("/") or name.endswith(".pyc") for name in names
        )
        assert any(name.endswith("dist-info/entry_points.txt") for name in names)
        metadata = (
            zipfile.ZipFile(path).read(next(name for name in names if name.endswith("/METADATA"))).decode()
        )
        assert "file://" not in metadata
        assert f"Name: {module.replace('_', '-')}\n" in metadata


def test_core_alone(environment, tmp_path):
    python = environment("scepter-core")
    scepter = python.with_name("scepter")
    where = call(
        python, "-c", "import scepter_core; print(scepter_core.__file__)", cwd=tmp_path
    ).stdout.strip()
    assert Path(where).is_relative_to(tmp_path / "environment")

    listed = call(scepter, "plugins", cwd=tmp_path).stdout
    assert "Hook" not in listed
    assert "scepter-backward" not in listed

    (tmp_path / "task.py").write_text(TASK, encoding="utf-8")
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    done = call(scepter, "run", "config.yaml", cwd=tmp_path)
    steps = [line for line in done.stdout.splitlines() if line.startswith("step")]
    # two steps and an eval in each epoch; the weight stays 1
    assert steps == ["step 1.0 1.0", "step 5.0 1.0", "step 6.0 1.0"] * 2
    (warning,) = [line for line in (done.stdout + done.stderr).splitlines() if "WARNING" in line]
    assert "no hook in TRAIN_HOOKS computes gradients" in warning
    assert "pip install scepter-backward" in warning

    wanted = call(
        scepter, "run", "config.yaml", "SOLVER.TRAIN_HOOKS=[{NAME: BackwardHook}]", cwd=tmp_path, check=False
    )
    assert wanted.returncode == 2
    assert "pip install scepter-backward" in wanted.stderr
    assert "Traceback" not in wanted.stderr


@each_plugin
def test_plugin_alone_passes_its_own_tests(environment, tmp_path, folder):
    python = environment("scepter-core", folder.name)
    copy = tmp_path / folder.name  # as if it lived in a repository of its own
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    listed = call(python.with_name("scepter"), "plugins", cwd=tmp_path).stdout
    distributions = {word for word in listed.split() if word.startswith("scepter-")}
    assert distributions <= {"scepter-core", folder.name}
    assert folder.name in distributions

    module = folder.name.replace("-", "_")
    where = call(python, "-c", f"import {module}; print({module}.__file__)", cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(tmp_path / "environment")
    done = call(
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:cov",
        "tests",
        cwd=copy,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
