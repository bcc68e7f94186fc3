"""The bus, the registry and the list of plugins answer before torch could even load."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
{body}
heavy = sorted({{"torch", "numpy", "torchmetrics"}} & set(sys.modules))
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""


@pytest.mark.parametrize(
    "body",
    [
        "import scepter_core; dir(scepter_core); scepter_core.__version__",
        "import scepter_core.bus; scepter_core.bus.EventBus().freeze()",
        "from scepter_core import Hook, hookimpl, hookspec, HOOKS, OPTIMIZERS",
        "from scepter_core.discovery import plugins; plugins()",
        "from scepter_core.registry import REGISTRIES; [registry.names() for registry in REGISTRIES.values()]",
    ],
)
def test_nothing_heavy_is_imported(body: str):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(body=body)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
