"""Randomness is a function of position: nothing that does not belong to a step changes what it draws."""

from __future__ import annotations

import multiprocessing

import pytest
import torch

from scepter_core import SOLVERS, load_config, run

NET = {
    "TRAIN_DATA": {"NAME": "Rows", "BATCH_SIZE": 4},
    "MODEL": {"NAME": "NormDropNet"},
    "OPTIMIZER": {"NAME": "AdamW", "LEARNING_RATE": 0.01},
}


def _weights(solver):
    return torch.cat([value.double().reshape(-1) for value in solver.model.state_dict().values()])


def test_nothing_beside_the_step_changes_the_result(configure):
    plain = _weights(run(configure(**NET)))
    workers = dict(NET, TRAIN_DATA={**NET["TRAIN_DATA"], "NUM_WORKERS": 2})
    variants = {
        "workers": run(configure(**workers)),
        "eval": run(configure(**NET, EVAL_DATA={"NAME": "Rows", "BATCH_SIZE": 3})),
        "drawing hook": run(configure(**NET, TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "DrawingHook"}])),
        "eval in mid-epoch": run(
            configure(
                **NET,
                EVAL_DATA={"NAME": "Rows"},
                TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "EvalNow"}],
            )
        ),
    }
    for name, solver in variants.items():
        assert torch.equal(_weights(solver), plain), name
    assert not torch.equal(_weights(run(configure(**NET, ENV={"DEVICE": "cpu", "SEED": 1}))), plain)


def test_persistent_workers_change_nothing_and_end_with_the_run(configure):
    plain = _weights(run(configure(**NET)))
    data = {**NET["TRAIN_DATA"], "NUM_WORKERS": 2, "PERSISTENT_WORKERS": True}
    solver = run(configure(**dict(NET, TRAIN_DATA=data)))
    assert torch.equal(_weights(solver), plain)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [0, 2])
def test_f07_every_sample_draws_its_own_numbers(configure, workers):
    config = configure(TRAIN_DATA={"NAME": "Draws", "BATCH_SIZE": 2, "NUM_WORKERS": workers}, MODEL={"NAME": "GradProbe"})
    epochs = []
    for _ in range(2):
        solver = SOLVERS.build(load_config(config).SOLVER)
        solver.set_up_pre()
        solver.construct_data()
        drawn = [
            torch.cat([batch["x"] for batch, _ in solver.datas["train"].batches(epoch)]) for epoch in (1, 2)
        ]
        epochs.append(torch.stack(drawn))
    assert torch.equal(epochs[0], epochs[1])
    for stream in range(3):
        assert epochs[0][:, :, stream].unique().numel() == 16


@pytest.mark.parametrize("workers", [0, 2])
def test_the_order_depends_on_seed_and_epoch_and_can_start_anywhere(configure, workers):
    config = configure(TRAIN_DATA={"NAME": "Draws", "SIZE": 10, "BATCH_SIZE": 3, "NUM_WORKERS": workers})
    solver = SOLVERS.build(load_config(config).SOLVER)
    solver.set_up_pre()
    solver.construct_data()
    data = solver.datas["train"]
    whole = {epoch: [(b["index"].tolist(), b["x"].tolist(), last) for b, last in data.batches(epoch)] for epoch in (1, 2)}
    assert [last for *_, last in whole[1]] == [False, False, False, True]
    assert sorted(index for indices, *_ in whole[1] for index in indices) == list(range(10))
    assert [indices for indices, *_ in whole[1]] != [indices for indices, *_ in whole[2]]
    for start in range(5):
        part = [(b["index"].tolist(), b["x"].tolist(), last) for b, last in data.batches(2, start)]
        assert part == whole[2][start:]


def test_a_start_in_mid_epoch_reads_nothing_before_it(configure):
    solver = SOLVERS.build(load_config(configure(TRAIN_DATA={"NAME": "Draws", "SIZE": 10, "BATCH_SIZE": 3})).SOLVER)
    solver.set_up_pre()
    solver.construct_data()
    data = solver.datas["train"]
    read = []
    data.loader.dataset.dataset = _Noting(data.dataset, read)
    batches = [batch["index"].tolist() for batch, _ in data.batches(1, 2)]
    assert read == [index for batch in batches for index in batch]
    assert len(read) == 4


class _Noting:
    def __init__(self, dataset, read):
        self.dataset, self.read = dataset, read

    def __getitem__(self, index):
        self.read.append(index)
        return self.dataset[index]


def test_a_model_does_not_depend_on_what_the_data_set_draws(configure):
    weights = []
    for data in (NET["TRAIN_DATA"], {"NAME": "DrawsInInit", "BATCH_SIZE": 4}):
        solver = SOLVERS.build(load_config(configure(**dict(NET, TRAIN_DATA=data))).SOLVER)
        solver.set_up_pre()
        solver.set_up()
        weights.append(_weights(solver))
    assert torch.equal(*weights)


def test_stream_without_a_length(configure):
    stream = {"NAME": "Stream", "VALUES": [1] * 7, "BATCH_SIZE": 2}
    solver = run(configure(TRAIN_DATA=stream, MAX_EPOCHS=None, MAX_STEPS=10))
    assert (solver.total_updates, float(solver.model.w), solver.epoch) == (10, -10.0, 3)
    solver = run(configure(TRAIN_DATA=stream, MAX_EPOCHS=2))
    assert (solver.total_updates, float(solver.model.w), solver.epoch_max_iter) == (8, -8.0, -1)
    solver = run(configure(TRAIN_DATA=stream, MAX_EPOCHS=None, MAX_STEPS=3))
    assert (solver.total_updates, float(solver.model.w)) == (3, -3.0)


@pytest.mark.parametrize(
    ("data", "accumulate", "updates"),
    [
        ({"NUM_WORKERS": 2}, 1, 8),  # each worker ends with a short batch: 4 an epoch, not 3
        ({"NUM_WORKERS": 2}, 3, 4),
        ({"LENGTH": 2}, 1, 6),  # a length that is too small
        ({"LENGTH": 2}, 2, 4),
        ({"LENGTH": 60}, 2, 4),
    ],
)
def test_a_stream_that_is_wrong_about_its_length_loses_nothing(configure, data, accumulate, updates):
    stream = {"NAME": "SharedStream", "BATCH_SIZE": 2, **data}
    solver = run(configure(TRAIN_DATA=stream, ACCU_STEP=accumulate))
    assert solver.total_updates == updates
    assert float(solver.model.w.detach()) == pytest.approx(-updates, abs=1e-6)
