from __future__ import annotations

import math

import torch
from torch.nn import functional

from scepter_digits import DigitsNet


def test_logits_come_without_labels_and_the_loss_with_them() -> None:
    model = DigitsNet(width=4).eval()
    images, labels = torch.rand(3, 1, 8, 8), torch.tensor([7, 0, 9])
    assert set(model(images)) == {"logits"}
    outputs = model(image=images, label=labels)
    assert outputs["logits"].shape == (3, 10)
    assert torch.equal(outputs["loss"], functional.cross_entropy(outputs["logits"], labels))


def test_width_scales_the_layers() -> None:
    def count(width: int) -> int:
        return sum(parameter.numel() for parameter in DigitsNet(width).parameters())

    # three 3×3 convolutions, their norms, and the head
    assert count(4) == 9 * (4 + 16 + 32) + 2 * (4 + 4 + 8) + (32 * 10 + 10)


def test_an_untrained_net_knows_nothing() -> None:
    torch.manual_seed(0)
    loss = DigitsNet().eval()(torch.rand(64, 1, 8, 8), torch.arange(64) % 10)["loss"]
    assert abs(loss.item() - math.log(10)) < 0.1
