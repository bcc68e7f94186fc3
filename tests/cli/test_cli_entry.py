"""Help, version, usage errors, streams."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from scepter_core import __version__

USAGE = "Usage: scepter run [OPTIONS] {CFG} [OVERRIDES]...\n"


def test_version(project):
    done = project.scepter("--version")
    assert (done.status, done.out, done.err) == (0, f"scepter {__version__}\n", "")


def test_the_installed_command_is_the_same(project):
    script = os.path.join(os.path.dirname(sys.executable), "scepter")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"scepter {__version__}\n"


def test_help_names_every_command(project):
    done = project.scepter("--help")
    assert done.status == 0
    listed = done.out.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == [
        "run", "eval", "test", "validate", "explain", "plugins", "checkpoints", "convert",
    ]  # fmt: skip
    assert "128 + n" in done.out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plugins"], ["run", "--help"]])
def test_imports_neither_torch_nor_rich_nor_a_plugin(project, arguments):
    site = project.distribution("demo-noisy", "raise SystemError('imported')", {"Noisy": "Noisy"})
    code = (
        "import sys\nfrom scepter_core.cli import main\nstatus = main(sys.argv[1:])\n"
        "heavy = {'torch', 'numpy', 'rich', 'demo_noisy', 'scepter_log'} & set(sys.modules)\n"
        "print(status, sorted(heavy), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=project.environment(PYTHONPATH=site),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == "0 []\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], f"{USAGE}Try 'scepter run -h' for help.\n\nError: Missing argument 'CFG'.\n"),
        (["run", "cfg.yaml", "--foo"], f"{USAGE}Try 'scepter run -h' for help.\n\nError: No such option: --foo\n"),
    ],
)
def test_wrong_usage(project, arguments, message):
    done = project.scepter(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err == message


def test_unknown_command(project):
    done = project.scepter("rnu", "cfg.yaml")
    assert done.status == 2
    assert "No such command 'rnu'" in done.err


def test_no_command_shows_help(project):
    done = project.scepter()
    assert done.status == 2
    assert "Usage: scepter [OPTIONS] COMMAND [ARGS]..." in done.out + done.err


def test_what_the_encoding_lacks_is_escaped(project):
    done = project.scepter("run", "größe.yaml", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("gr\\xf6\\xdfe.yaml: no such file\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_error(project, unbuffered):
    process = subprocess.Popen(
        project.command("plugins", "--json"),
        env=project.environment(PYTHONUNBUFFERED=unbuffered),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def _on_terminal(project, *arguments, **environment):
    """Standard output and error of the command on a terminal."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        project.command(*arguments),
        cwd=project.folder,
        env=project.environment(TERM="xterm", **environment),
        stdin=side,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    output = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        output += part
    os.close(main)
    process.wait()
    return output.decode().replace("\r\n", "\n")


def test_a_report_on_a_terminal_is_coloured(project):
    shown = _on_terminal(project, "run", "missing.yaml")
    assert shown.startswith("\x1b[1mmissing.yaml\x1b[0m\x1b[31m: no such file\x1b[0m\n\x1b[32m    hint:")


def test_a_table_on_a_terminal_is_coloured(project):
    assert "\x1b[1m" in _on_terminal(project, "plugins")


@pytest.mark.parametrize("arguments", [["run", "missing.yaml"], ["plugins"]])
def test_no_color_is_respected(project, arguments):
    shown = _on_terminal(project, *arguments, NO_COLOR="1")
    assert shown
    assert "\x1b" not in shown
