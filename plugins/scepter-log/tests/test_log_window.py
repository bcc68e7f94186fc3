"""The window by itself: what it reads when, and what it keeps."""

from __future__ import annotations

import pytest
import torch

from scepter_log.window import FOLD, Window


@pytest.fixture
def reads(monkeypatch):
    """How often values came from tensors to Python."""
    counted = []
    for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor,
            name,
            lambda self, original=original, name=name: counted.append(name) or original(self),
        )
    return counted


def test_nothing_is_read_before_read_and_then_once(reads):
    window = Window()
    for step in range(1, 201):
        window.add({"loss": torch.tensor(float(step)), "accuracy": torch.tensor(0.5), "plain": 2}, samples=4)
    assert reads == []
    now, means, samples = window.read()
    assert reads == ["tolist"]
    assert now == {"loss": 200.0, "accuracy": 0.5, "plain": 2.0}
    assert means == {"loss": 100.5, "accuracy": 0.5, "plain": 2.0}
    assert samples == 800


def test_a_long_window_stays_small():
    window = Window()
    for _ in range(1000):
        window.add({"loss": torch.tensor(1.0)}, samples=1)
        assert len(window._recent["loss"]) <= FOLD
    assert window.read()[1] == {"loss": 1.0}


def test_changing_sizes_weigh_as_they_are():
    window = Window()
    for value, samples in ((1.0, 4), (2.0, 1), (3.0, 2), (4.0, 2)):
        window.add({"loss": torch.tensor(value)}, samples)
    assert window.read()[1] == {"loss": pytest.approx((4 + 2 + 6 + 8) / 9)}
    assert (window.steps, window.samples) == (4, 9)


def test_a_graph_is_not_kept():
    window = Window()
    weight = torch.nn.Parameter(torch.tensor(2.0))
    window.add({"loss": weight * 3}, samples=1)
    assert all(not value.requires_grad for value in window._recent["loss"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_any_number_type(dtype):
    window = Window()
    for value in (1, 2, 6):
        window.add({"count": torch.tensor(value, dtype=dtype)}, samples=1)
    assert window.read() == ({"count": 6.0}, {"count": 3.0}, 3)


def test_state_goes_on_to_the_bit():
    values = [0.1, 0.7, 0.3, 0.9, 0.2, 1e-3]
    whole, first, second = Window(), Window(), Window()
    for value in values:
        whole.add({"loss": torch.tensor(value)}, samples=3)
    for value in values[:4]:
        first.add({"loss": torch.tensor(value)}, samples=3)
    second.load_state_dict(first.state_dict())
    assert second.read()[0] == {"loss": pytest.approx(0.9)}
    for value in values[4:]:
        second.add({"loss": torch.tensor(value)}, samples=3)
    assert second.read() == whole.read()
    assert (second.steps, second.samples) == (6, 18)
