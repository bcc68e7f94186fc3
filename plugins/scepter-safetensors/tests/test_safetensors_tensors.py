"""What is in a file, read by a process of its own, and back in a model."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file

from scepter_core import RunError
from scepter_safetensors import load_into


def test_d01_tied_weights(job, models):
    trained = job.run("ExportTied", rate=0.1).model
    found = job.read(10)
    assert list(found["values"]) == ["embedding.weight"]
    assert torch.equal(torch.tensor(found["values"]["embedding.weight"]), trained.head.weight)

    x = torch.arange(6.0)
    for load in (load_into, load_model):
        fresh = models["ExportTied"]()
        assert not torch.equal(fresh.head.weight, trained.head.weight)
        load(fresh, job.path(10))
        assert fresh.head.weight is fresh.embedding.weight
        assert torch.equal(fresh.head.weight, trained.head.weight)
        assert torch.equal(fresh(x)["loss"], trained(x)["loss"])
        assert fresh.head.weight.requires_grad


def test_d03_metadata_are_text(job):
    job.run(size=2, epochs=2)
    assert job.read(4)["metadata"] == {"format": "pt", "step": "4", "epoch": "2"}
    assert load_into(torch.nn.ParameterDict({"w": torch.ones(())}), job.path(4)) == {
        "format": "pt",
        "step": "4",
        "epoch": "2",
    }


def test_d03_metadata_of_a_solver_of_ones_own(job):
    job.run(solver={"NAME": "ExportSolver"}, size=4)
    assert job.read(4)["metadata"] == {"format": "pt", "step": "4", "epoch": "1", "rate": "0.5"}  # and no "None"


def test_d06_every_layout_and_kind(job, models):
    trained = job.run("ExportOdd", INTERVAL=5).model
    found = job.read(10)
    values = {
        "w": -10.0,
        "transposed": [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]],
        "conv.weight": trained.conv.weight.tolist(),
        "bf16": [1.5, -2.25],
        "slice": [3.0, 4.0, 5.0],
        "overlapping": [5.0, 6.0, 7.0],
        "every_second": [0.0, 2.0, 4.0, 6.0, 8.0],
        "expanded": [7.0, 7.0, 7.0],
        "count": 5,
        "empty": [],
        "empty_too": [],
    }
    stored = load_file(job.path(10))
    assert stored.pop("complex").tolist() == [1 + 2j]
    assert stored.pop("conjugate").tolist() == [1 - 2j]
    assert stored.keys() == values.keys()
    for name, value in values.items():
        assert stored[name].tolist() == value, name
    assert {name: str(value.dtype) for name, value in stored.items()}.items() <= found["dtypes"].items()
    assert (found["dtypes"]["bf16"], found["dtypes"]["count"]) == ("torch.bfloat16", "torch.int64")
    (warning,) = job.warnings  # one, for two files
    assert "extra._extra_state" in warning

    fresh = models["ExportOdd"]()
    fresh.extra.words = ["its own"]
    fresh.expanded = fresh.expanded.clone()  # torch loads into no tensor whose elements are one memory
    load_into(fresh, job.path(10))
    for name, value in trained.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(fresh.state_dict()[name], value), name
    assert fresh.extra.words == ["its own"]
    assert fresh.conv.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.filterwarnings("error")
def test_d06_whatever_a_solver_exports_is_made_fit(job):
    trained = job.run("ExportTied", INTERVAL=5, rate=0.1, solver={"NAME": "ExportSolver"}).model
    found = job.read(10)
    assert found["values"].keys() == {"net.embedding.weight", "conj"}  # tied: once
    assert found["values"]["conj"] == ["(1-2j)"]
    assert torch.equal(torch.tensor(found["values"]["net.embedding.weight"]), trained.head.weight)
    (warning,) = job.warnings
    assert warning.endswith(": double, sparse, name")


def test_d06_slices_that_a_solver_exports_as_they_are(job):
    trained = job.run("ExportOdd", solver={"NAME": "ExportSolver"}).model
    stored = load_file(job.path(10))
    assert stored["net.slice"].tolist() == [3.0, 4.0, 5.0]
    assert stored["net.overlapping"].tolist() == [5.0, 6.0, 7.0]
    assert stored["net.complex"].tolist() == [1 + 2j]
    assert stored["net.conjugate"].tolist() == [1 - 2j]
    assert trained.overlapping.data_ptr() == trained.slice.data_ptr() + 8  # the model's own are left as they are
    (warning,) = job.warnings
    assert warning.count("_extra_state") == 2  # under the solver's name and the model's


def test_c21_names_are_the_plain_models(job, models):
    job.run("ExportModule")
    assert set(load_file(job.path(10))) == {"module.weight", "module.bias"}
    load_into(models["ExportModule"](), job.path(10))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weights: weights.pop("bf16"), "lacks: bf16"),
        (lambda weights: weights.update(more=torch.ones(1)), "has besides: more"),
        (lambda weights: weights.update(w=torch.ones(3)), r"of another shape: w is \(3,\), the model's \(\)"),
    ],
)
def test_loading_is_strict_and_changes_nothing_that_does_not_fit(job, models, tmp_path, change, said):
    job.run("ExportOdd")
    weights = load_file(job.path(10))
    change(weights)
    save_file(weights, tmp_path / "other.safetensors")
    fresh = models["ExportOdd"]()
    with pytest.raises(RunError, match=rf"other\.safetensors is not of this model; it {said}"):
        load_into(fresh, tmp_path / "other.safetensors")
    assert float(fresh.w.detach()) == 0.0


def test_loading_names_tied_weights_that_differ_in_the_file(models, tmp_path):
    path = tmp_path / "untied.safetensors"
    weights = {"embedding.weight": torch.ones(6, 4), "head.weight": torch.zeros(6, 4)}
    save_file(weights, path)
    with pytest.raises(RunError, match=r"different values for embedding\.weight and head\.weight"):
        load_into(models["ExportTied"](), path)
    save_file({name: torch.ones(6, 4) for name in weights}, path)
    fresh = models["ExportTied"]()
    load_into(fresh, path)
    assert torch.equal(fresh.head.weight, torch.ones(6, 4))


def test_loading_takes_a_file_with_the_other_name_of_a_tied_weight(models, tmp_path):
    path = tmp_path / "head.safetensors"
    save_file({"head.weight": torch.full((6, 4), 3.0)}, path)
    fresh = models["ExportTied"]()
    assert load_into(fresh, str(path)) == {}
    assert torch.equal(fresh.embedding.weight, torch.full((6, 4), 3.0))
    assert fresh.head.weight is fresh.embedding.weight


def test_loading_converts_to_the_models_dtype(job, models):
    job.run()
    model = models["ExportLine"]().double()
    load_into(model, job.path(10))
    assert model.w.dtype is torch.float64
    assert float(model.w.detach()) == -10.0
