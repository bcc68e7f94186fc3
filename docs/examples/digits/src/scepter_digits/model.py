"""A small convolutional network for 8×8 images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class DigitsNet(nn.Module):
    """Three convolutions and a linear layer.

    Args:
        width: channels of the first two convolutions; the third has twice as many.
        dropout: share of the features that is left out in training.
    """

    def __init__(self, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_block(1, width),
            *_block(width, width),
            nn.MaxPool2d(2),  # 4×4
            *_block(width, 2 * width),
            nn.MaxPool2d(2),  # 2×2
            nn.Flatten(),
            nn.Dropout(dropout),
        )
        self.head = nn.Linear(8 * width, 10)

    def forward(self, image: Tensor, label: Tensor | None = None) -> dict[str, Tensor]:
        """Classify a batch.

        Args:
            image: N×1×8×8 in [0, 1].
            label: N digits, if they are known.

        Returns:
            `logits`, N×10; and `loss`, the mean cross entropy, where labels are given.
        """
        logits = self.head(self.features(image))
        if label is None:
            return {"logits": logits}
        return {"logits": logits, "loss": functional.cross_entropy(logits, label)}


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
