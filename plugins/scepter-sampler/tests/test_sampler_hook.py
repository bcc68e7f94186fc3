"""The orders that torch's DistributedSampler has are the orders in which a run sees the samples."""

from __future__ import annotations

import pytest
from torch.utils.data import DistributedSampler

from scepter_core import ConfigError


def order(epoch, rank=0, size=8):
    """What torch gives: the epoch counted from 0."""
    sampler = DistributedSampler(range(size), num_replicas=2, rank=rank, seed=0)
    sampler.set_epoch(epoch)
    return list(sampler)


def flat(batches):
    return [sample for batch in batches for sample in batch]


def distributed(rank=0):
    return {"NAME": "DistributedSampler", "NUM_REPLICAS": 2, "RANK": rank, "SEED": 0}


THREE_EPOCHS = [*order(0), *order(1), *order(2)]


def test_the_expected_orders_differ():
    assert [order(0), order(1), order(2)] == [[4, 7, 2, 1], [5, 2, 7, 1], [0, 7, 6, 1]]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("workers", [{}, {"NUM_WORKERS": 2}])
def test_f05_each_epoch_has_its_order(train, rank, workers):
    data = {"NAME": "SamplerTestData", "BATCH_SIZE": 1, "SAMPLER": distributed(rank), **workers}
    seen = flat(train(TRAIN_DATA=data).model.seen)
    assert seen == [*order(0, rank), *order(1, rank), *order(2, rank)]


def test_f05_two_ranks_are_disjoint_in_every_epoch(train):
    ranks = [flat(train(distributed(rank)).model.seen) for rank in (0, 1)]
    for epoch in range(3):
        parts = [set(seen[4 * epoch : 4 * epoch + 4]) for seen in ranks]
        assert parts[0] | parts[1] == set(range(8))
        assert parts[0] & parts[1] == set()


def test_f05_without_the_hook_every_epoch_has_the_first_order(train):
    assert flat(train(distributed(), hooks=()).model.seen) == order(0) * 3


def test_f05_resumed_before_epoch_3(train):
    train(distributed(), epochs=2, save=True)
    assert flat(train(distributed(), load="epoch-2.pth").model.seen) == order(2)


@pytest.mark.parametrize("step", range(1, 12))
def test_f05_resumed_after_any_step(train, step):
    train(distributed(), save=True)
    assert flat(train(distributed(), load=f"{step}.pth").model.seen) == THREE_EPOCHS[step:]


@pytest.mark.parametrize("name", ["BatchesOfDistributed", "BatchesOfBatches"])
def test_f05_within_a_batch_sampler(train, name):
    solver = train({"NAME": name})
    assert flat(solver.model.seen) == THREE_EPOCHS
    assert [len(batch) for batch in solver.model.seen] == [2] * 6
    assert flat(train({"NAME": name}, epochs=2, save=True).model.seen) == THREE_EPOCHS[:8]
    assert flat(train({"NAME": name}, load="3.pth").model.seen) == THREE_EPOCHS[6:]


def test_the_sampler_within_is_told_first(train):
    assert train({"NAME": "BatchesOfBatches"}).datas["train"].sampler.epochs == [0, 1, 2]


@pytest.mark.parametrize("kind", ["sampler", "batch_sampler"])
def test_f05_of_a_solvers_own_loader(train, own_loader, kind):
    own_loader(kind)
    assert flat(train(NAME="OwnLoader", save=True).model.seen) == THREE_EPOCHS
    assert flat(train(NAME="OwnLoader", load="3.pth").model.seen) == THREE_EPOCHS[6:]


@pytest.mark.parametrize("sampler", [None, {"NAME": "RandomSampler"}, {"NAME": "SequentialSampler"}])
def test_f05_samplers_without_set_epoch_are_left_alone(train, sampler):
    with_hook, without = train(sampler), train(sampler, hooks=())
    assert with_hook.model.seen == without.model.seen
    assert len(with_hook.model.seen) == 24


@pytest.mark.parametrize("kind", ["random", "list"])
def test_loaders_with_nothing_to_tell_are_left_alone(train, own_loader, kind):
    own_loader(kind)
    assert train(NAME="OwnLoader").model.seen == train(NAME="OwnLoader", hooks=()).model.seen


def test_once_an_epoch(train):
    solver = train({"NAME": "NotingSampler"})
    assert solver.datas["train"].sampler.told == [0, 1, 2]


@pytest.mark.parametrize(("folds", "epochs"), [(2, 4), (3, 5), (4, 3)])
def test_epochs_within_a_pass_have_their_orders_too(train, folds, epochs):
    expected = [sample for epoch in range(epochs) for sample in order(epoch)]
    assert flat(train(distributed(), epochs=epochs, NUM_FOLDS=folds).model.seen) == expected
    told = train({"NAME": "NotingSampler"}, epochs=epochs, NUM_FOLDS=folds).datas["train"].sampler.told
    assert told == list(range(epochs))


@pytest.mark.parametrize("step", range(1, 16))
def test_epochs_within_a_pass_after_a_resume(train, step):
    expected = [sample for epoch in range(4) for sample in order(epoch)]
    train(distributed(), epochs=4, NUM_FOLDS=2, save=True)
    assert flat(train(distributed(), epochs=4, NUM_FOLDS=2, load=f"{step}.pth").model.seen) == expected[step:]


def test_a_limit_of_steps_within_a_pass(train):
    solver = train({"NAME": "NotingSampler"}, epochs=-1, NUM_FOLDS=2, MAX_STEPS=8)
    assert solver.datas["train"].sampler.told == [0]
    solver = train({"NAME": "NotingSampler"}, epochs=-1, NUM_FOLDS=2, MAX_STEPS=9)
    assert solver.datas["train"].sampler.told == [0, 1]


def test_a_limit_of_steps_that_is_raised(train):
    train(distributed(), epochs=-1, MAX_STEPS=6, save=True)
    seen = flat(train(distributed(), epochs=-1, MAX_STEPS=10, load="6.pth").model.seen)
    assert seen == THREE_EPOCHS[6:10]


def test_evals_are_not_its_business(train):
    data = {"NAME": "SamplerTestData", "SAMPLER": {"NAME": "NotingSampler"}}
    solver = train({"NAME": "NotingSampler"}, EVAL_DATA=data, EVAL_HOOKS=[{"NAME": "DistSamplerHook"}])
    assert solver.datas["train"].sampler.told == [0, 1, 2]
    assert solver.datas["eval"].sampler.told == []


def test_priority_role_and_keys(train):
    solver = train()
    hook = solver.hooks_dict["train"][-1]
    assert (hook.priority, hook.role) == (400, "sampler")
    with pytest.raises(ConfigError, match="sampler"):
        train(hooks=[{"NAME": "DistSamplerHook"}, {"NAME": "DistSamplerHook"}])
    with pytest.raises(ConfigError, match="EPOCH: unknown key"):
        train(hooks=[{"NAME": "DistSamplerHook", "EPOCH": 1}])
