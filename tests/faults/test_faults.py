"""Nothing is lost to any kill. The long form: `pytest tests/faults --kills 200`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_run_that_is_killed_again_and_again_ends_as_the_undisturbed_one(request):
    kills = request.config.getoption("--kills")
    seed = request.config.getoption("--kills-seed")
    driver = Path(__file__).with_name("driver.py")
    done = subprocess.run(
        [sys.executable, str(driver), "--kills", str(kills), "--seed", str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    print(summary)
    assert summary["kills"] >= kills
    assert (summary["damaged_files"], summary["differing_values"]) == (0, 0), done.stderr
