"""docs/pylm.md: its configuration, its commands on a small model, and numbers that agree with each other."""

from __future__ import annotations

import math
import shlex
import sys
from typing import Any

from PIL import Image

PAGE = "docs/pylm.md"
EXAMPLE = "docs/examples/pylm/pylm.yaml"
SMALL = (
    "SOLVER.MAX_STEPS=4 SOLVER.EVAL_INTERVAL=2 SOLVER.TRAIN_DATA.BATCH_SIZE=2 SOLVER.EVAL_DATA.EVERY=100 "
    "SOLVER.MODEL.WIDTH=12 SOLVER.MODEL.LAYERS=1 SOLVER.LR_SCHEDULER.WARMUP_STEPS=1 SOLVER.TRAIN_HOOKS[LogHook].LOG_INTERVAL=2"
)


def test_the_configuration_shown_is_the_language_models(docs: Any) -> None:
    (block,) = docs.blocks(PAGE, "yaml")
    assert block.text == (docs.root / EXAMPLE).read_text(encoding="utf-8")


def test_the_commands_train_complete_count_and_draw(docs: Any, sandbox: Any) -> None:
    install, *commands = (line for block in docs.blocks(PAGE, "sh") for line in block.text.splitlines())
    assert all((docs.root / path).exists() for path in shlex.split(install)[3:])
    shown = []
    for command in commands:
        words = shlex.split(command)
        if words[0] == "scepter":
            done = sandbox.call(f"{command} {SMALL}")
        else:
            assert words[0] == "python"
            done = sandbox.run([sys.executable, *words[1:]])
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        shown.append(done.stdout)
    assert "step 4 | loss" in shown[0]
    assert shown[1].startswith("def __init__(self, ")
    assert 2 < float(shown[2].removesuffix(" bits a character\n")) < 5  # of this Python's library
    assert Image.open(sandbox.path / "curve.png").size == (720, 360)


def test_the_numbers_of_the_run_agree(docs: Any) -> None:
    ((*evals, bigram),) = docs.tables(PAGE, "What it reached")
    steps, bits, losses = ([float(row[column]) for row in evals] for column in (0, 2, 3))
    assert steps == [300.0 * number for number in range(1, 9)]
    assert bits == sorted(bits, reverse=True)
    assert all(abs(loss / math.log(2) - bit) < 0.002 for loss, bit in zip(losses, bits, strict=True))
    assert docs.blocks(PAGE, "text")[0].text == f"{bigram[2]} bits a character\n"
    assert abs(float(bigram[3]) / math.log(2) - float(bigram[2])) < 0.002
    assert bits[-1] < float(bigram[2]) - 1.5
    picture = docs.root / "docs/pylm-curve.png"
    assert picture.stat().st_size < 60_000
    assert Image.open(picture).size == (720, 360)
