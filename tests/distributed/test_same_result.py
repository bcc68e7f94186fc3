"""One process, two, three or four: the same batches, losses, weights and metrics."""

from __future__ import annotations

import pytest

from tests.distributed.conftest import Many, assert_same

METRICS = (
    "SOLVER.METRICS=[{NAME: AccuracyMetric, KEYS: [logits, y]}, "
    "{NAME: MulticlassF1Score, NUM_CLASSES: 3, AVERAGE: macro, KEYS: [logits, y]}, "
    "{NAME: MulticlassAUROC, NUM_CLASSES: 3, KEYS: [logits, y]}]"
)


def _agree(one, other) -> None:
    assert_same(one.state()["model"], other.state()["model"], within=1e-6)
    assert len(one.rows) == len(other.rows) > 0
    for row, same in zip(one.rows, other.rows, strict=True):
        assert_same(row, same, within=1e-5)


@pytest.mark.parametrize(
    ("nproc", "batch_size", "strategy"), [(2, 6, "ddp"), (3, 4, "fsdp"), (4, 3, "{NAME: fsdp, SHARDING: grad_op, WRAP: ['blocks.*']}")]
)
def test_the_same_global_batch_gives_the_same_run(many: Many, nproc: int, batch_size: int, strategy: str) -> None:
    # 37 samples in batches of 12: the last one has a single sample, which all but one process have no share of;
    # of the 2 samples of the eval, two of four processes see none.
    sizes = ("SOLVER.EVAL_DATA.SIZE=2", METRICS)
    one = many.run("one", "SOLVER.TRAIN_DATA.BATCH_SIZE=12", *sizes)
    several = many.run("several", f"SOLVER.TRAIN_DATA.BATCH_SIZE={batch_size}", f"ENV.STRATEGY={strategy}", *sizes, nproc=nproc)
    assert (one.status, several.status) == (0, 0)
    _agree(one, several)


def test_a_strategy_of_somebody_elses(many: Many) -> None:
    one = many.run("one", "SOLVER.TRAIN_DATA.BATCH_SIZE=12", "ENV.STRATEGY=OneByOne")
    two = many.run("two", "SOLVER.TRAIN_DATA.BATCH_SIZE=6", "ENV.STRATEGY={NAME: OneByOne, FACTOR: 1.0}", nproc=2)
    assert (one.status, two.status) == (0, 0), two.err
    _agree(one, two)


def test_accumulation_with_a_short_window(many: Many) -> None:
    one = many.run("one", "SOLVER.TRAIN_DATA.BATCH_SIZE=4", accumulate=4)  # windows of 4, 4 and 2
    two = many.run("two", "SOLVER.TRAIN_DATA.BATCH_SIZE=2", nproc=2, accumulate=4)
    assert one.state()["total_updates"] == 6
    _agree(one, two)


@pytest.mark.parametrize("own", ["true", "false"])
def test_streams_of_different_lengths(many: Many, own: str) -> None:
    # 19 and 18 samples: one process has a last batch of three, the other of two.
    stream = f"{{NAME: PointStream, SIZE: 37, OWN: {own}, BATCH_SIZE: 4}}"
    done = many.run("run", f"SOLVER.TRAIN_DATA={stream}", f"SOLVER.EVAL_DATA={stream}", METRICS, nproc=2)
    assert (done.status, done.err) == (0, "")
    state = done.state()
    assert (state["total_iter"]["train"], state["total_updates"]) == (10, 10)
    reference = many.run("one", "SOLVER.TRAIN_DATA.SHUFFLE=false", "SOLVER.TRAIN_DATA.BATCH_SIZE=8", METRICS,
                         "SOLVER.EVAL_DATA={NAME: Points, SIZE: 37, BATCH_SIZE: 5}")
    # Batches of 8 in another order within: the same sums.
    assert_same(state["model"], reference.state()["model"], within=1e-5)
    assert_same(state["metrics"]["epoch_outputs"]["eval"], reference.state()["metrics"]["epoch_outputs"]["eval"], within=1e-5)


def test_a_stream_that_draws_its_order_is_divided_not_drawn_twice(many: Many) -> None:
    one = many.run("one", "SOLVER.TRAIN_DATA={NAME: ShuffledStream, BATCH_SIZE: 8}")
    two = many.run("two", "SOLVER.TRAIN_DATA={NAME: ShuffledStream, BATCH_SIZE: 4}", nproc=2)
    assert (one.status, two.status) == (0, 0)
    _agree(one, two)


def test_every_process_draws_numbers_of_its_own(many: Many) -> None:
    runs = [many.run(name, "SOLVER.MODEL.DROP=0.5", nproc=2) for name in ("first", "again")]
    assert_same(runs[0].state()["model"], runs[1].state()["model"])
    streams = runs[0].state()["rng"]
    assert set(streams) == {"rank0", "rank1"}
    assert streams["rank0"]["torch"].tolist() != streams["rank1"]["torch"].tolist()


def test_saved_eval_data_is_in_the_order_of_the_data(many: Many) -> None:
    from safetensors.torch import load_file

    keep = ("SOLVER.SAVE_EVAL_DATA=true", "SOLVER.EXTRA_KEYS=[x, y]", "SOLVER.EVAL_DATA.BATCH_SIZE=2", "SOLVER.MAX_EPOCHS=1")
    one = many.run("one", *keep, "SOLVER.TRAIN_DATA.BATCH_SIZE=6")
    three = many.run("three", *keep, "SOLVER.TRAIN_DATA.BATCH_SIZE=2", nproc=3)
    saved = [load_file(done.work_dir / "eval/1.safetensors") for done in (one, three)]
    assert saved[0]["x"].shape == (11, 8)
    assert_same(saved[0], saved[1])
