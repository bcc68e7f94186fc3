"""FILE_SYSTEM, and the keys that hold paths: what is taken, what is refused and where, and what is never shown."""

from __future__ import annotations

import pytest

from scepter_core import ConfigError, dump_config, load_config
from scepter_core.cli import main


def _load(overrides=(), **keys):
    return load_config({"SOLVER": {"NAME": "TrainValSolver", "WORK_DIR": "/tmp/run", **keys}}, overrides)


def _errors(overrides=(), **keys):
    with pytest.raises(ConfigError) as caught:
        _load(overrides, **keys)
    return [str(problem) for problem in caught.value.problems]


def test_one_section_or_a_list():
    one = _load(FILE_SYSTEM={"PROTOCOL": "s3", "KEY": "a", "ENDPOINT_URL": "http://h", "TOKEN": None}).SOLVER.FILE_SYSTEM
    assert (one.protocol, one.retry_times, one.options) == ("s3", 3, {"key": "a", "endpoint_url": "http://h"})
    two = _load(FILE_SYSTEM=[{"PROTOCOL": "ftp", "HOST": "h"}, {"PROTOCOL": "memory", "RETRY_TIMES": 0}]).SOLVER.FILE_SYSTEM
    assert [config.protocol for config in two] == ["ftp", "memory"]
    assert _load(FILE_SYSTEM={"NAME": "LocalFs", "TEMP_DIR": "/x", "RETRY_TIMES": 10}).SOLVER.FILE_SYSTEM.name == "LocalFs"


REFUSED = [
    ({"FILE_SYSTEM": {"PROTOCOL": "s4"}}, "SOLVER.FILE_SYSTEM.PROTOCOL: fsspec knows no protocol s4; did you mean s3"),
    ({"FILE_SYSTEM": {"PROTOCOL": "gs"}}, "SOLVER.FILE_SYSTEM.PROTOCOL: the driver of gs:// is not installed: pip install gcsfs"),
    ({"WORK_DIR": "gs://bucket/run"}, "SOLVER.WORK_DIR: the driver of gs:// is not installed: pip install gcsfs"),
    ({"WORK_DIR": "abfs://c@a/run"}, "SOLVER.WORK_DIR: the driver of abfs:// is not installed: pip install adlfs"),
    ({"WORK_DIR": "sftp://h/run"}, "SOLVER.WORK_DIR: the driver of sftp:// is not installed: pip install paramiko"),
    ({"RESUME_FROM": "ss3://b/x.pth"}, "SOLVER.RESUME_FROM: fsspec knows no protocol ss3; did you mean s3"),
    ({"WORK_DIR": "s3:/bucket/run"}, "SOLVER.WORK_DIR: a URL has two slashes: s3://"),
    ({"WORK_DIR": "simplecache::s3://b/run"}, "SOLVER.WORK_DIR: chained URLs (::) are no place to write to"),
    (
        {"TRAIN_HOOKS": [{"NAME": "TensorboardLogHook", "LOG_DIR": "gs://b/x"}]},
        "SOLVER.TRAIN_HOOKS[0].LOG_DIR: the driver of gs:// is not installed: pip install gcsfs",
    ),
    ({"FILE_SYSTEM": {"PROTOCOL": "s3", "SECRT": "x"}}, "SOLVER.FILE_SYSTEM: S3FileSystem has no option SECRT; did you mean SECRET?"),
    ({"FILE_SYSTEM": {"KEY": "x"}}, "SOLVER.FILE_SYSTEM.PROTOCOL: required key is missing"),
    ({"FILE_SYSTEM": [{"PROTOCOL": "s3"}, {"PROTOCOL": "s3a"}]}, "SOLVER.FILE_SYSTEM: a second section of the protocol s3a"),
    ({"FILE_SYSTEM": {"NAME": "AliyunOssFs"}}, "SOLVER.FILE_SYSTEM.NAME: AliyunOssFs is SCEPTER's own; here"),
    ({"FILE_SYSTEM": {"NAME": "ModelscopeFs"}}, "SOLVER.FILE_SYSTEM.NAME: ModelscopeFs is SCEPTER's own; here"),
    ({"FILE_SYSTEM": {"PROTOCOL": "s3", "SECRET": "***"}}, "SOLVER.FILE_SYSTEM: SECRET was masked when this was written"),
    ({"WORK_DIR": "ftp://u:***@h/run"}, "SOLVER.WORK_DIR: the password was masked when this was written"),
]


@pytest.mark.parametrize(("keys", "words"), REFUSED, ids=[words[:60] for _, words in REFUSED])
def test_what_is_wrong_is_said_where_it_stands(keys, words):
    (error,) = _errors(**keys)
    assert error.startswith(words)


def test_a_driver_that_is_installed_and_broken_says_why(tmp_path, monkeypatch):
    (tmp_path / "gcsfs.py").write_text("import a_part_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    (error,) = _errors(WORK_DIR="gs://b/run")
    assert "(No module named 'a_part_that_is_missing')" in error


def test_a_dump_masks_secrets_and_keeps_references(monkeypatch):
    monkeypatch.setenv("STORE_SECRET", "from-the-environment")
    options = {
        "PROTOCOL": "s3",
        "KEY": "clear-key",
        "SECRET": "${env:STORE_SECRET}",
        "TOKEN": "${env:NO_SUCH_VARIABLE,clear-default}",
        "ENDPOINT_URL": "http://ann:clear-password@h",
        "CLIENT_KWARGS": {"aws_session_token": "clear-token", "region_name": "here"},
    }
    config = _load(
        FILE_SYSTEM=[options, {"PROTOCOL": "ftp", "PASSWORD": "clear-ftp"}],
        RESUME_FROM="ftp://ann:clear-login@h/x.pth",
    )
    config.meta = {"OF_STORE": {"PROTOCOL": "s3", "SECRET": "clear-in-meta"}}
    text = dump_config(config)
    assert "clear-" not in text
    assert "from-the-environment" not in text
    assert "SECRET: '${env:STORE_SECRET}'" in text
    assert "region_name: here" in text
    assert "ENDPOINT_URL: http://ann:***@h" in text
    assert "RESUME_FROM: ftp://ann:***@h/x.pth" in text
    for shown in (repr(config), str(config.SOLVER.FILE_SYSTEM[0])):
        assert "clear-key" not in shown
    again = _errors(FILE_SYSTEM={**options, "KEY": "***"})
    assert again == ["SOLVER.FILE_SYSTEM: KEY was masked when this was written; write it as ${env:NAME}"]


@pytest.mark.parametrize(
    "override",
    [
        "SOLVER.FILE_SYSTEM={PROTOCOL: s4, SECRET: sesame}",
        "SOLVER.FILE_SYSTEM={PROTOCOL: s3, SECRT: sesame}",
        "SOLVER.FILE_SYSTEM.SECRET=sesame${env:NO_SUCH_VARIABLE}",
        "SOLVER.WORK_DIR=sftp://ann:sesame@h/run",
        "SOLVER.WORK_DIR=[sftp://ann:sesame@h/run]",
    ],
)
def test_errors_show_no_secrets(override, tmp_path, capsys):
    (tmp_path / "cfg.yaml").write_text("SOLVER: {NAME: TrainValSolver, WORK_DIR: /tmp/run, FILE_SYSTEM: {PROTOCOL: s3}}\n")
    assert main(["validate", str(tmp_path / "cfg.yaml"), override]) == 2
    shown = "".join(capsys.readouterr())
    assert "SOLVER." in shown
    assert "sesame" not in shown


def test_explain_shows_no_password(tmp_path, capsys):
    (tmp_path / "cfg.yaml").write_text("SOLVER: {NAME: TrainValSolver, WORK_DIR: 'ftp://ann:sesame@h/run'}\n")
    assert main(["explain", str(tmp_path / "cfg.yaml")]) == 0
    shown = "".join(capsys.readouterr())
    assert "work_dir ftp://ann@h/run" in shown
    assert "sesame" not in shown


def test_no_url_no_fsspec(tmp_path):
    import subprocess
    import sys

    program = (
        "import sys, scepter_core as s\n"
        "s.load_config({'SOLVER': {'NAME': 'TrainValSolver', 'WORK_DIR': '/tmp/run', 'FILE_SYSTEM': {'NAME': 'LocalFs'}}})\n"
        "from scepter_core.io import RunFileSystem\n"
        "RunFileSystem().exists('/tmp')\n"
        "assert 'fsspec' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
