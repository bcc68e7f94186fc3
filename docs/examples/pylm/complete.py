"""Completes a line with the newest export: python complete.py runs/pylm 'def '."""

import sys
from pathlib import Path

from safetensors.torch import load_model

from scepter_pylm import CharGPT

newest = max(Path(sys.argv[1], "safetensors").glob("*.safetensors"), key=lambda path: int(path.stem.rsplit("-", 1)[1]))
load_model(model := CharGPT(), newest)
print(model.eval().complete(sys.argv[2], 120).partition("\n\n")[0])
