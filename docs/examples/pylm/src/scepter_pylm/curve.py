"""The curve of a run as a PNG: `python -m scepter_pylm.curve RUN/metrics.jsonl curve.png BIGRAM_BITS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from PIL import Image, ImageDraw

_SIZE, _LEFT, _TOP, _RIGHT, _BOTTOM = (720, 360), 56, 16, 16, 40


def points(file: Path, mode: str, kind: str) -> list[tuple[int, float]]:
    """(step, bits) of the rows of this mode and kind."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [(row["step"], row["values"]["bits"]) for row in rows if (row["mode"], row["kind"]) == (mode, kind)]


def draw(file: Path, picture: Path, bigram: float) -> None:
    """Training and eval, over the steps, beside the bigram model."""
    train, held_out = points(file, "train", "iter"), points(file, "eval", "epoch")
    last, low, high = train[-1][0], 1.0, 7.0
    image = Image.new("RGB", _SIZE, "white")
    pen = ImageDraw.Draw(image)
    across, down = _SIZE[0] - _LEFT - _RIGHT, _SIZE[1] - _TOP - _BOTTOM

    def place(step: float, bits: float) -> tuple[float, float]:
        return _LEFT + across * step / last, _TOP + down * (high - min(bits, high)) / (high - low)

    for bits in range(int(low), int(high) + 1):
        pen.line([place(0, bits), place(last, bits)], fill="#dddddd")
        pen.text((_LEFT - 16, place(0, bits)[1] - 6), str(bits), fill="black")
    for quarter in range(5):
        step = last * quarter // 4
        pen.text((place(step, low)[0] - 10, _SIZE[1] - _BOTTOM + 6), str(step), fill="black")
    pen.text((_LEFT + across / 2 - 60, _SIZE[1] - 18), "steps; bits a character", fill="black")
    pen.line([place(0, bigram), place(last, bigram)], fill="#888888", width=2)
    pen.text((place(last, bigram)[0] - 140, place(last, bigram)[1] - 16), f"bigram model {bigram:.2f}", fill="#555555")
    pen.line([place(*point) for point in train], fill="#7aa6d6", width=2)
    pen.line([place(*point) for point in held_out], fill="#c0392b", width=3)
    pen.text((place(last, held_out[-1][1])[0] - 140, place(last, held_out[-1][1])[1] + 8), f"held out {held_out[-1][1]:.2f}", fill="#c0392b")
    image.save(picture, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
