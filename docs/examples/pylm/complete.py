"""Completes a line with the newest export of a run: python complete.py runs/pylm "def "."""

import sys
from pathlib import Path

from safetensors.torch import load_model

from scepter_core import MODELS, load_config

run = Path(sys.argv[1])
model = MODELS.build(load_config(run / "config.yaml").SOLVER.MODEL).eval()
load_model(model, max(run.glob("safetensors/*.safetensors"), key=lambda path: int(path.stem.rsplit("-", 1)[1])))
print(model.complete(sys.argv[2], 120).partition("\n")[0])
