"""Every page: its links lead somewhere, its blocks are of a known kind, its configurations and commands are valid."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import scepter_core

# What a fragment of a YAML file is a fragment of.
WHOLE = """
PLUGINS: [./task.py]
SOLVER:
  NAME: TrainValSolver
  WORK_DIR: ./runs/whole
  MAX_EPOCHS: 2
  TRAIN_DATA: {NAME: NoisySine, SAMPLES: 64, BATCH_SIZE: 32}
  MODEL: {NAME: Curve}
  OPTIMIZER: {NAME: AdamW, LEARNING_RATE: 1e-3}
  LR_SCHEDULER: {NAME: CosineAnnealingLR, T_MAX: 2}
  TRAIN_HOOKS: [{NAME: BackwardHook}, {NAME: LogHook}]
"""


def test_links_lead_to_files_and_headings(docs: Any, page: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)]+)\)", docs.text(page)):
        if target.startswith("https://"):
            continue
        name, _, heading = target.partition("#")
        file = (docs.root / page).parent / name if name else docs.root / page
        if not file.exists():
            broken.append(target)
        elif heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            if heading not in [title.lower().replace(" ", "-") for title in titles]:
                broken.append(target)
    assert broken == []


def test_blocks_are_of_a_kind_that_is_checked(docs: Any, page: str) -> None:
    kinds = {block.language for block in docs.blocks(page)}
    assert kinds <= {"yaml", "python", "toml", "sh", "text"}


def test_lines_fit(docs: Any, page: str) -> None:
    text = re.sub(r"^```.*?^```$|^\|.*?$", "", docs.text(page), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > 132] == []


def test_yaml_is_a_valid_configuration(docs: Any, yaml_block: Any, tmp_path: Path) -> None:
    shutil.copy(docs.root / "docs/examples/regression/task.py", tmp_path)
    (tmp_path / "base.yaml").write_text(WHOLE)
    base = "" if "_BASE" in yaml_block.text or "  NAME: TrainValSolver" in yaml_block.text else "_BASE: base.yaml\n"
    file = tmp_path / "cfg.yaml"
    file.write_text(base + yaml_block.text, encoding="utf-8")
    scepter_core.load_config(file)


def test_toml_is_toml(docs: Any, page: str) -> None:
    for block in docs.blocks(page, "toml"):
        assert tomllib.loads(block.text)


def test_python_compiles(docs: Any, page: str) -> None:
    for block in docs.blocks(page, "python"):
        compile(block.text, str(block), "exec")


def test_commands_and_their_options_exist(docs: Any, sandbox: Any) -> None:
    used: dict[str, set[str]] = {}
    for page in docs.pages:
        inline = re.findall(r"`(scepter [a-z][^`]*)`", docs.text(page))
        for line in [*inline, *(line for block in docs.blocks(page, "sh") for line in block.text.splitlines())]:
            for command in line.split("&&"):
                words = shlex.split(command, comments=True)
                if words[:1] == ["scepter"]:
                    options = {word for word in words[2:] if re.fullmatch(r"--?[a-z][a-z-]*", word)}
                    used.setdefault(words[1], set()).update(options)
    assert {"run", "eval", "test", "validate", "explain", "plugins", "checkpoints"} <= used.keys()
    for command, options in used.items():
        shown = sandbox.call(f"scepter {command} --help")
        assert shown.returncode == 0, f"scepter {command}"
        assert [option for option in options if option not in shown.stdout.replace(",", " ").split()] == []


def test_overrides_of_the_configuration_page_are_valid(docs: Any, tmp_path: Path) -> None:
    shutil.copy(docs.root / "docs/examples/regression/task.py", tmp_path)
    file = tmp_path / "cfg.yaml"
    file.write_text(WHOLE)
    (block,) = docs.blocks("docs/configuration.md", "sh")
    commands = [shlex.split(line) for line in block.text.splitlines()]
    assert all(words[:3] == ["scepter", "validate", "cfg.yaml"] for words in commands)
    loaded = [scepter_core.load_config(file, words[3:]).SOLVER for words in commands]
    assert loaded[0].MAX_EPOCHS == 3
    assert [hook.PRIORITY for hook in loaded[1].TRAIN_HOOKS] == [5, 100]
    assert loaded[1].TRAIN_HOOKS[1].LOG_INTERVAL == 1
    assert (loaded[2].MODEL.HIDDEN, loaded[2].OPTIMIZER.NAME) == (128, "SGD")
    assert loaded[3].LR_SCHEDULER is None
