"""The curve of a run as a PNG: `python -m scepter_pylm.curve RUN/metrics.jsonl curve.png BIGRAM_BITS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from PIL import Image, ImageDraw

_SIZE, _LEFT, _TOP, _RIGHT, _BOTTOM = (720, 360), 56, 16, 16, 40
_LOW, _HIGH = 1, 7  # bits a character
_GRID, _BIGRAM, _TRAIN, _HELD_OUT = "#dddddd", "#777777", "#7aa6d6", "#c0392b"


def points(file: Path, mode: str, kind: str) -> list[tuple[int, float]]:
    """(step, bits) of the rows of this mode and kind."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row["step"], row["values"]["bits"]) for row in rows if (row["mode"], row["kind"]) == (mode, kind)]


class _Plot:
    """An empty picture of bits over steps.

    Args:
        last: the step at its right end.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.image = Image.new("RGB", _SIZE, "white")
        self.pen = ImageDraw.Draw(self.image)
        for bits in range(_LOW, _HIGH + 1):
            self.line([(0, bits), (last, bits)], _GRID, 1)
            self.pen.text((_LEFT - 16, self.place(0, bits)[1] - 6), str(bits), fill="black")
        for quarter in range(5):
            step = last * quarter // 4
            self.pen.text((self.place(step, _LOW)[0] - 12, _SIZE[1] - _BOTTOM + 6), str(step), fill="black")
        self.pen.text((_SIZE[0] / 2 - 80, _SIZE[1] - 16), "bits a character, over the steps", fill="black")

    def place(self, step: float, bits: float) -> tuple[float, float]:
        across, down = _SIZE[0] - _LEFT - _RIGHT, _SIZE[1] - _TOP - _BOTTOM
        return _LEFT + across * step / self.last, _TOP + down * (_HIGH - min(bits, _HIGH)) / (_HIGH - _LOW)

    def line(self, course: list[tuple[int, float]], colour: str, width: int) -> None:
        self.pen.line([self.place(*point) for point in course], fill=colour, width=width)

    def label(self, text: str, bits: float, above: int, colour: str) -> None:
        across, down = self.place(self.last, bits)
        self.pen.text((across - 150, down - above), text, fill=colour)


def draw(file: Path, picture: Path, bigram: float) -> None:
    """Training and eval, over the steps, beside the bigram model.

    Args:
        file: the run's metrics.jsonl.
        picture: the PNG to write.
        bigram: bits a character of the bigram model.
    """
    train, held_out = points(file, "train", "iter"), points(file, "eval", "epoch")
    plot = _Plot(train[-1][0])
    for course, colour, width in (
        ([(0, bigram), (plot.last, bigram)], _BIGRAM, 2),
        (train, _TRAIN, 2),
        (held_out, _HELD_OUT, 3),
    ):
        plot.line(course, colour, width)
    plot.label(f"bigram model {bigram:.2f}", bigram, 16, _BIGRAM)
    plot.label("training", train[-1][1], 20, _TRAIN)
    plot.label(f"held-out files {held_out[-1][1]:.2f}", held_out[-1][1], -8, _HELD_OUT)
    plot.image.save(picture, format="PNG", optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
