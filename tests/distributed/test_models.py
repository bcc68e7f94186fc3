"""Models that not every strategy likes: the same result, or a word on what to change."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file

from tests.distributed.conftest import LAST, Many, assert_same

ODD = "SOLVER.MODEL={NAME: OddPerceptron, %s: true}"
UNCLIPPED = "SOLVER.TRAIN_HOOKS[BackwardHook].GRADIENT_CLIP=-1"


def test_a_part_of_the_gradient_may_be_empty(many: Many) -> None:
    # Two processes, and parameters with a single row.
    one = many.run("one", "SOLVER.TRAIN_DATA.BATCH_SIZE=8", ODD % "TIED", UNCLIPPED)
    two = many.run("two", ODD % "TIED", UNCLIPPED, "ENV.STRATEGY=fsdp", nproc=2)
    assert (one.status, two.status) == (0, 0), two.err
    assert_same(one.state()["model"], two.state()["model"], within=1e-6)


def test_a_nan_in_one_part_of_the_gradient_ends_all(many: Many) -> None:
    done = many.run("run", UNCLIPPED, "ENV.STRATEGY=fsdp", hooks=f"{{NAME: Poison}}, {LAST}", nproc=2)
    assert done.status == 1
    assert "the gradient's norm is nan at epoch 1, iteration 3, update 3" in done.err
    assert "lost the connection" not in done.err


def test_tied_weights_with_a_single_row_are_exported_once(many: Many) -> None:
    hooks = f"{{NAME: SafetensorsHook}}, {LAST}"
    done = many.run("run", ODD % "TIED", "ENV.STRATEGY=fsdp", "SOLVER.MAX_EPOCHS=1", hooks=hooks, nproc=2)
    assert done.status == 0, done.err
    weights = load_file(done.work_dir / "safetensors/ldm_step-5.safetensors")
    assert "other.weight" not in weights
    assert_same(weights, {name: done.state()["model"][name] for name in weights})


def test_optimizers_without_a_fused_form_for_parts(many: Many) -> None:
    sgd = "SOLVER.OPTIMIZER={NAME: SGD, LEARNING_RATE: 0.1, MOMENTUM: 0.9}"
    one = many.run("one", "SOLVER.TRAIN_DATA.BATCH_SIZE=8", sgd)
    two = many.run("two", sgd, "ENV.STRATEGY=fsdp", nproc=2)
    assert two.status == 0, two.err
    assert_same(one.state()["model"], two.state()["model"], within=1e-6)


@pytest.mark.parametrize(
    ("section", "key"), [("{NAME: SGD, LEARNING_RATE: 0.1, FUSED: true}", "FUSED"), ("{NAME: Rprop, LEARNING_RATE: 0.1}", "NAME")]
)
def test_optimizers_that_torch_does_not_have_for_parts(many: Many, section: str, key: str) -> None:
    done = many.run("run", f"SOLVER.OPTIMIZER={section}", "ENV.STRATEGY=fsdp", nproc=2)
    assert done.status == 2
    assert done.err.startswith(f'override "SOLVER.OPTIMIZER={section}": SOLVER.OPTIMIZER.{key}: torch has no such ')
    assert "for parameters that are divided among processes\n" in done.err


def test_a_parameter_without_axes_is_named(many: Many) -> None:
    done = many.run("run", ODD % "SCALAR", "ENV.STRATEGY=fsdp", nproc=2)
    assert done.status == 2
    assert done.err == (
        'override "ENV.STRATEGY=fsdp": ENV.STRATEGY: a parameter without axes cannot be divided: scale\n'
        "    found:    fsdp\n"
        "    expected: ddp, or a model that gives such parameters the shape [1]\n"
    )


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
