"""`run`, `eval` and `test` from outside: statuses, messages, files."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial

import pytest
import typer

from scepter_core.cli.options import seconds

SAVES = "SOLVER.TRAIN_HOOKS=[{NAME: Descent}, {NAME: CheckpointHook, ASYNC: false, SAVE_LAST: true}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3600", 3600), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("0.5", 0.5), ("1.5s", 1.5)],
)
def test_times(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0s", "1x", "1h30", "-5", "m", "5 m", "1m1h"])
def test_what_is_no_time(text):
    with pytest.raises(typer.BadParameter, match="is not a time such as 1h30m, 5m, 90s or 3600"):
        seconds(text)


def test_a_run_and_what_follows_it(project):
    first = project.scepter("run", "cfg.yaml", SAVES)
    assert (first.status, first.err) == (0, "")
    saved = project.folder / "run/checkpoints"
    assert sorted(path.name for path in saved.iterdir()) == ["ldm_step-4.pth", "ldm_step-8.pth", "ldm_step-last.pth"]

    again = project.scepter("run", "cfg.yaml", SAVES)
    assert (again.status, again.out) == (2, "")
    assert again.err == (
        "cfg.yaml:5:13: SOLVER.WORK_DIR: ./run holds the checkpoints of an earlier run, and a new one would mix with them\n"
        "    hint:     --resume auto goes on from the newest; --overwrite removes the earlier run; "
        "or set another SOLVER.WORK_DIR\n"
    )

    finished = project.scepter("run", "cfg.yaml", SAVES, "--resume", "auto")
    assert finished.status == 0
    assert "Nothing to do" in finished.out

    evaluated = project.scepter("eval", "cfg.yaml", "--quiet")
    assert (evaluated.status, evaluated.out, evaluated.err) == (0, "", "")

    overwritten = project.scepter("run", "cfg.yaml", SAVES, "SOLVER.MAX_EPOCHS=1", "--overwrite", "--quiet")
    assert (overwritten.status, overwritten.out) == (0, "")
    assert sorted(path.name for path in saved.iterdir()) == ["ldm_step-4.pth", "ldm_step-last.pth"]


def test_eval_without_a_checkpoint_warns(project):
    done = project.scepter("eval", "cfg.yaml", "--quiet")
    assert done.status == 0
    assert "WARNING NO CHECKPOINT in" in done.out


def test_test_needs_its_data(project):
    done = project.scepter("test", "cfg.yaml")
    assert (done.status, done.err) == (2, "SOLVER.TEST_DATA: required key is missing\n")


def test_a_missing_checkpoint_is_said_without_a_traceback(project):
    done = project.scepter("eval", "cfg.yaml", "--resume", "gone.pth")
    assert (done.status, done.err) == (1, "cannot read the checkpoint gone.pth: there is no such file\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--resume", "auto", "--overwrite"],
            "Invalid value for --resume: goes on from what --overwrite removes: give one of them",
        ),
        (
            ["--resume", "best"],
            "Invalid value for --resume: best is for eval and test; a run goes on from auto or a path",
        ),
        (["--max-time", "soon"], "'soon' is not a time such as 1h30m, 5m, 90s or 3600 (seconds)"),
    ],
)
def test_options_that_cannot_be_meant(project, options, message):
    done = project.scepter("run", "cfg.yaml", *options)
    assert done.status == 2
    assert message in done.err


def test_a_hook_that_fails(project):
    done = project.scepter("run", "cfg.yaml", "SOLVER.TRAIN_HOOKS=[{NAME: Descent}, {NAME: Breaks}]")
    assert (done.status, done.out) == (1, "")
    lines = done.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["ValueError: no more: ü", "raised by Breaks (task.py) in after_iter, train epoch 1, iteration 3"]
    assert f'  File "{project.folder}/task.py", line' in done.err
    assert "scepter_core/cli" not in done.err
    assert "typer" not in done.err
    assert (project.folder / "run/std_log.txt").read_text(encoding="utf-8").endswith(done.err)


def test_a_hook_that_fails_where_the_output_is_ascii(project):
    hooks = "SOLVER.TRAIN_HOOKS=[{NAME: Descent}, {NAME: Breaks}]"
    done = project.scepter("run", "cfg.yaml", hooks, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.status == 1
    assert "ValueError: no more: \\xfc\n" in done.err


def _endless(project, *more, **options):
    return subprocess.Popen(
        project.command("run", "cfg.yaml", "SOLVER.MAX_EPOCHS=1000000", *more),
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
        **options,
    )


LOGS = "SOLVER.TRAIN_HOOKS=[{NAME: Descent}, {NAME: LogHook}, {NAME: CheckpointHook, ASYNC: false}]"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_a_checkpoint(project, signum):
    process = _endless(project, LOGS)
    process.stdout.readline()  # it is training
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert err == f"stopped by {signum.name}\n"
    assert any((project.folder / "run/checkpoints").glob("*.pth"))
    assert (project.folder / "run/std_log.txt").read_text().endswith(err)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_all_processes_of_the_run_leaves_its_workers_to_it(project, signum):
    workers = ["SOLVER.TRAIN_DATA.NUM_WORKERS=2", "SOLVER.TRAIN_DATA.PERSISTENT_WORKERS=true"]
    process = _endless(project, LOGS, *workers, start_new_session=True)
    process.stdout.readline()  # it is training
    os.killpg(process.pid, signum)
    if signum == signal.SIGUSR1:  # a checkpoint, and it goes on
        process.stdout.readline()
        signum = signal.SIGTERM
        os.killpg(process.pid, signum)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + signum, f"stopped by {signum.name}\n")
    assert any((project.folder / "run/checkpoints").glob("*.pth"))
    with pytest.raises(ProcessLookupError):  # no worker stayed
        os.killpg(process.pid, 0)


def test_an_interrupt_before_the_run_is_quiet(project):
    project.write("slow.py", "print('importing', flush=True)\nimport time\ntime.sleep(60)\n")
    process = _endless(project, "-p", "slow.py")
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")


def test_a_save_asked_for_before_the_run_does_not_end_it(project):
    project.write("slow.py", "import sys\nprint('importing', flush=True)\nsys.stdin.readline()\n")
    process = _endless(project, LOGS, "-p", "slow.py", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGUSR1)
    process.stdin.write("go on\n")
    process.stdin.flush()
    process.stdout.readline()  # it is training
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "stopped by SIGTERM\n")


def test_a_log_that_nobody_reads_ends_the_run_in_good_order(project):
    process = _endless(project, LOGS)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141
    assert any((project.folder / "run/checkpoints").glob("*.pth"))


def test_max_time(project):
    started = time.monotonic()
    done = project.scepter("run", "cfg.yaml", "SOLVER.MAX_EPOCHS=1000000", SAVES, "--max-time", "1s")
    assert done.status == 128 + signal.SIGTERM
    assert done.err == "the time limit of --max-time is reached\n"
    assert time.monotonic() - started >= 1


def test_fast_dev_run_leaves_nothing(project):
    before = sorted(path.name for path in project.folder.iterdir())
    done = project.scepter("run", "cfg.yaml", SAVES, "--fast-dev-run", PYTHONDONTWRITEBYTECODE="1")
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith(
        "INFO    the trial run went well: two steps of each mode, a save, a resume and two more\n"
    )
    assert sorted(path.name for path in project.folder.iterdir()) == before


def test_a_disabled_plugin(project):
    done = project.scepter("run", "cfg.yaml", SAVES, "--disable-plugin", "CheckpointHook")
    assert done.status == 2
    assert "SOLVER.TRAIN_HOOKS[1].NAME: the hook CheckpointHook is disabled\n" in done.err


def test_a_plugin_to_disable_that_is_not_there(project):
    done = project.scepter("run", "cfg.yaml", "--disable-plugin", "CheckpontHook")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "no plugin or distribution 'CheckpontHook' to disable; did you mean CheckpointHook?\n"
    )


def test_what_a_hook_prints_to_the_terminal_goes_through(project):
    project.write("loud.py", "print('hello from loud')\n")
    done = project.scepter("run", "cfg.yaml", "-p", "loud.py", "SOLVER.MAX_EPOCHS=1")
    assert done.status == 0
    assert done.out.startswith("hello from loud\n")


PICKY = """
import torch
from scepter_core import MODELS

@MODELS.register_class()
class Picky(torch.nn.Module):
    def __init__(self, width: int, heads: int = 2):
        if width % heads:
            raise ValueError(f"{heads} heads cannot share {width}")
        raise KeyError("no such thing")
"""


def test_what_turns_out_wrong_while_building_is_said_at_its_place(project):
    project.write("picky.py", PICKY)
    project.write("picky.yaml", "_BASE: cfg.yaml\nSOLVER:\n  MODEL: {NAME: Picky, WIDTH: 3}\n  OPTIMIZER: {MOMENTUM: -1}\n")
    refused = project.scepter("run", "picky.yaml", "-p", "picky.py")
    assert (refused.status, refused.err) == (
        2,
        "picky.yaml:3:10: SOLVER.MODEL: Picky cannot be built: 2 heads cannot share 3\n"
        f"    hint:     raised in {project.folder}/picky.py, line 9 (all of the traceback: SCEPTER_TRACEBACK=1)\n",
    )
    shown = project.scepter("run", "picky.yaml", "-p", "picky.py", SCEPTER_TRACEBACK="1")
    assert shown.err.startswith("Traceback ")
    assert shown.err.endswith(refused.err)
    assert "ValueError: 2 heads cannot share 3\n" in shown.err
    option = project.scepter("run", "picky.yaml", "SOLVER.MODEL={NAME: Line}", "-p", "picky.py", "--fast-dev-run")
    assert (option.status, option.err) == (
        2,
        "picky.yaml:4:14: SOLVER.OPTIMIZER: SGD refuses a value: Invalid momentum value: -1.0\n",
    )


def test_a_value_of_the_command_is_not_said_to_stand_in_the_file(project):
    project.write("from.yaml", "_BASE: cfg.yaml\nSOLVER: {RESUME_FROM: a.pth}\n")
    done = project.scepter("run", "from.yaml", "--resume", "b.pth")
    assert done.err.startswith("SOLVER.RESUME_FROM: no hook of the run loads checkpoints\n    found:    b.pth\n")


def test_a_run_without_anything_to_run_says_so(project):
    done = project.scepter("run", "cfg.yaml", "SOLVER.MODE=test")
    assert (done.status, "WARNING nothing to run: of the data there is TRAIN_DATA" in done.out) == (0, True)


def test_the_log_has_the_traceback_of_what_the_screen_says_in_a_sentence(project):
    metric = "SOLVER.METRICS=[{NAME: MulticlassAccuracy, NUM_CLASSES: 3, KEYS: [x, loss]}]"
    done = project.scepter("run", "cfg.yaml", LOGS, metric)
    assert (done.status, "Traceback" in done.err) == (1, False)
    assert done.err.startswith("METRICS MulticlassAccuracy cannot take what train gives it: ")
    log = (project.folder / "run/std_log.txt").read_text()
    assert done.err.splitlines()[0] in log
    assert "Traceback (most recent call last):" in log
