"""Kills a small real run again and again, resumes it, and compares its end with that of a run that nobody disturbed.

    python tests/faults/driver.py --kills 20 --seed 0

The run has everything that a resume can lose: shuffling, random augmentation in two workers, dropout, BatchNorm, AdamW,
accumulation, warm-up, eval, best, KEEP_LAST and writing in the background; every other run reads a stream with a state. A kill is SIGKILL or SIGTERM at a random
instant, or a death inside a save: before or after one of its writes, its fsync, its rename. Runs are forked from one
process that has torch loaded, so that a kill costs no start-up.

The last line is a JSON object: kills, resumes, damaged files, differing values.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from scepter_core import FileSystem, run
from scepter_core.checkpoints import list_checkpoints

TASKS = Path(__file__).parents[1] / "tasks.py"


def configuration(folder: Path, stream: bool) -> dict[str, Any]:
    """Three epochs of ten steps of about ten milliseconds."""
    data = {"NAME": "SlowRows", "SIZE": 40, "BATCH_SIZE": 4}
    train = {**data, "NAME": "BufferedStream", "SECONDS": 0.004} if stream else data
    return {
        "PLUGINS": [str(TASKS)],
        "ENV": {"DEVICE": "cpu"},
        "SOLVER": {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(folder),
            "MAX_EPOCHS": 3,
            "TRAIN_DATA": {**train, "NUM_WORKERS": 2},
            "EVAL_DATA": {**data, "SIZE": 12},
            "TEST_DATA": {**data, "SIZE": 8},
            "MODEL": {"NAME": "NormDropNet"},
            "OPTIMIZER": {"NAME": "AdamW", "LEARNING_RATE": 0.01},
            "LR_SCHEDULER": {"NAME": "CosineAnnealingLR", "T_MAX": 3},
            "METRICS": [{"NAME": "AccuracyMetric", "KEYS": ["logits", "y"]}],
            "TRAIN_HOOKS": [
                {"NAME": "BackwardHook", "ACCUMULATE_STEP": 3, "GRADIENT_CLIP": 1.0},
                {"NAME": "LrHook", "SET_BY_EPOCH": stream},  # a stream has no length
                {"NAME": "LogHook", "LOG_INTERVAL": 4},
                {
                    "NAME": "CheckpointHook",
                    "INTERVAL_STEPS": 3,
                    "KEEP_LAST": 2,
                    "SAVE_LAST": True,
                    "SAVE_BEST_BY": "-loss",
                },
            ],
        },
    }


def child(config: dict[str, Any], prepare: Callable[[], None]) -> int:
    """Fork a process that goes on with the run of `config`; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    status = 1
    try:
        torch.set_num_threads(1)  # the pool of threads stayed with the parent
        logger = logging.Logger("faults")
        logger.addHandler(logging.NullHandler())
        prepare()
        run(config, resume="auto", logger=logger)
        status = 0
    except BaseException as error:
        status = getattr(error, "exit_status", 1)
        if status == 1:
            logging.exception("the run failed")
    finally:
        sys.stderr.flush()
        os._exit(status)


def die_inside_a_save(rng: random.Random) -> Callable[[], None]:
    """Makes the process die at a random operation of its saves."""
    countdown = rng.randint(1, 60)

    def prepare() -> None:
        left = countdown

        def tick() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(0, signal.SIGKILL)

        fsync, replace, write_atomic = os.fsync, Path.replace, FileSystem.write_atomic

        def ticking(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **keywords: Any) -> Any:
                tick()
                result = function(*arguments, **keywords)
                tick()
                return result

            return call

        class Ticking:
            def __init__(self, file: Any) -> None:
                self.write, self.flush = ticking(file.write), file.flush

        def whole(self: FileSystem, path: str, write: Callable[[Any], object]) -> None:
            write_atomic(self, path, lambda file: write(Ticking(file)))

        os.fsync, Path.replace = ticking(fsync), ticking(replace)  # type: ignore[method-assign]
        FileSystem.write_atomic = whole  # type: ignore[method-assign]

    return prepare


def disturb(config: dict[str, Any], rng: random.Random, kills: int) -> tuple[int, int, int]:
    """Run to the end in spite of up to `kills` kills; returns kills, resumes and damaged files."""
    done = resumes = damaged = 0
    while True:
        how = rng.choice(["kill", "kill", "term", "save", "save"]) if done < kills else "none"
        pid = child(config, die_inside_a_save(rng) if how == "save" else lambda: None)
        if how in ("kill", "term"):
            time.sleep(rng.uniform(0.05, 0.9))
            try:
                if how == "kill":
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:  # it was faster
                pass
        _, status = os.waitpid(pid, 0)
        damaged += sum(info.damage is not None for info in list_checkpoints(config["SOLVER"]["WORK_DIR"]))
        if os.waitstatus_to_exitcode(status) == 0:
            return done, resumes, damaged
        if os.waitstatus_to_exitcode(status) == 1:
            raise SystemExit("a run failed by itself")
        done, resumes = done + 1, resumes + 1


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of nested dicts and lists with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else None
    if items is None:
        yield path, value.tolist() if isinstance(value, torch.Tensor) else value
        return
    for key, entry in items:
        yield from flat(entry, f"{path}.{key}")


def content(folder: Path) -> dict[str, Any]:
    """All that two equal runs have equal: the last and the best checkpoint, and the values of metrics.jsonl."""
    found: dict[str, Any] = {}
    for name in ("last", "best"):
        state = torch.load(folder / "checkpoints" / f"ldm_step-{name}.pth", weights_only=True)
        del state["config"]  # it names the folder
        # A length in bytes of a file in which stand durations.
        leaves = ((path, leaf) for path, leaf in flat(state, name) if not path.endswith("LogHook.state.length"))
        found.update({path: repr(leaf) for path, leaf in leaves})
    for number, line in enumerate((folder / "metrics.jsonl").read_text().splitlines()):
        found[f"metrics.jsonl:{number}"] = {key: value for key, value in json.loads(line).items() if key != "timing"}
    return found


def undisturbed(folder: Path, stream: bool) -> dict[str, Any]:
    """What a run ends in that nobody disturbs."""
    _, status = os.waitpid(child(configuration(folder, stream), lambda: None), 0)
    if status:
        raise SystemExit("the undisturbed run failed")
    return content(folder)


def main() -> None:
    """Disturb runs until enough kills are done; print the summary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    kills = resumes = damaged = differing = 0
    with tempfile.TemporaryDirectory() as temporary:
        expected = [undisturbed(Path(temporary, f"undisturbed-{stream}"), stream) for stream in (False, True)]
        number = 0
        while kills < options.kills or number < 2:
            folder, stream = Path(temporary, f"disturbed-{number}"), number % 2 == 1
            budget = min(10, max(options.kills // 2, 1), options.kills - kills)
            more, again, broken = disturb(configuration(folder, stream), rng, budget)
            kills, resumes, damaged, number = kills + more, resumes + again, damaged + broken, number + 1
            reached, whole = content(folder), expected[stream]
            wrong = [key for key in whole.keys() | reached.keys() if whole.get(key) != reached.get(key)]
            if wrong:
                print(f"run {number}: {sorted(wrong)[:10]}", file=sys.stderr)
            differing += len(wrong)
    print(json.dumps({"kills": kills, "resumes": resumes, "damaged_files": damaged, "differing_values": differing}))


if __name__ == "__main__":
    main()
