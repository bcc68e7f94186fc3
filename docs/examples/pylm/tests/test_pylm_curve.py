from __future__ import annotations

import json
from pathlib import Path

from PIL import Image, ImageColor

from scepter_pylm.curve import draw, points


def test_each_line_is_where_its_numbers_are(tmp_path: Path) -> None:
    rows = [("train", "iter", 50, 6.0), ("train", "iter", 100, 4.0), ("train", "epoch", 100, 5.0), ("eval", "epoch", 50, 3.0),
            ("eval", "epoch", 100, 2.0)]  # fmt: skip
    file, picture = tmp_path / "metrics.jsonl", tmp_path / "curve.png"
    file.write_text(
        "".join(json.dumps({"mode": m, "kind": k, "step": s, "values": {"bits": b}}) + "\n" for m, k, s, b in rows)
    )
    assert points(file, "train", "iter") == [(50, 6.0), (100, 4.0)]
    draw(file, picture, 3.5)
    with Image.open(picture) as image:
        colours = {name: ImageColor.getrgb(name) for name in ("#777777", "#7aa6d6", "#c0392b")}
        # 648 pixels for 100 steps from 56 on, 304 for the 6 bits from 7 down to 1 from 16 on
        assert image.size == (720, 360)
        assert image.getpixel((100, round(16 + 304 * 3.5 / 6))) == colours["#777777"]
        assert image.getpixel((56 + 648 * 3 // 4, round(16 + 304 * 2 / 6))) == colours["#7aa6d6"]
        assert image.getpixel((56 + 648 * 3 // 4, round(16 + 304 * 4.5 / 6))) == colours["#c0392b"]
