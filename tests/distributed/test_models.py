"""Models that not every strategy likes: the same result, or a word on what to change."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file

from tests.distributed.conftest import LAST, Many, assert_same

ODD = "SOLVER.MODEL={NAME: OddPerceptron, %s: true}"
UNCLIPPED = "SOLVER.TRAIN_HOOKS[BackwardHook].GRADIENT_CLIP=-1"


def test_tied_weights_with_a_single_row_are_exported_once(many: Many) -> None:
    hooks = f"{{NAME: SafetensorsHook}}, {LAST}"
    done = many.run("run", ODD % "TIED", "ENV.STRATEGY=fsdp", "SOLVER.MAX_EPOCHS=1", hooks=hooks, nproc=2)
    assert done.status == 0, done.err
    weights = load_file(done.work_dir / "safetensors/ldm_step-5.safetensors")
    assert "other.weight" not in weights
    assert_same(weights, {name: done.state()["model"][name] for name in weights})


@pytest.mark.parametrize(
    ("strategy", "status", "said"),
    [
        (
            "ddp",
            1,
            "no gradient reached aside.weight, aside.bias in the last step, and ddp waits for that of every parameter: "
            "set ENV.STRATEGY: {NAME: ddp, FIND_UNUSED_PARAMETERS: true}\n",
        ),
        ("{NAME: ddp, FIND_UNUSED_PARAMETERS: true}", 0, ""),
    ],
)
def test_unused_parameters(many: Many, strategy: str, status: int, said: str) -> None:
    done = many.run("run", ODD % "UNUSED", f"ENV.STRATEGY={strategy}", nproc=2)
    assert done.status == status
    assert done.err.partition("failed:\n")[2] == said


def test_fsdp_in_one_process_divides_nothing(many: Many) -> None:
    single = many.run("single")
    fsdp = many.run("fsdp", "ENV.STRATEGY={NAME: fsdp, REDUCE_DTYPE: bfloat16}")
    assert fsdp.status == 0, fsdp.err
    assert "fsdp divides nothing in one process: PARAM_DTYPE and REDUCE_DTYPE do nothing" in fsdp.out
    assert_same(single.state()["model"], fsdp.state()["model"])
