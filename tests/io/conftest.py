"""Stores for the tests: one in memory, a real S3 server and a real FTP server on loopback."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

TASKS = Path(__file__).parents[1] / "tasks.py"
KEY, SECRET = "AKIAEXAMPLE", "sesame-open-wide"


class S3:
    """An S3 server, moto's, that can go away and come back on its port with what it held."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._application = DomainDispatcherApplication(create_backend_app)
        self.port = 0
        self.start()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.files = fsspec.filesystem("s3", key=KEY, secret=SECRET, endpoint_url=self.endpoint, use_listings_cache=False)

    def start(self) -> None:
        from werkzeug.serving import make_server

        self._server = make_server("127.0.0.1", self.port, self._application, threaded=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def section(self) -> dict[str, Any]:
        """The FILE_SYSTEM section of it, with its secrets in clear."""
        return {"PROTOCOL": "s3", "KEY": KEY, "SECRET": SECRET, "ENDPOINT_URL": self.endpoint}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = S3()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3) -> tuple[S3, str]:
    """The server, and the URL of a bucket that is this test's."""
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3_server.files.mkdir(bucket)
    return s3_server, f"s3://{bucket}"


@pytest.fixture
def memory() -> str:
    """The URL of a folder in memory that is this test's."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def ftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`user:password@host:port` of an FTP server, and the folder that it serves."""
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

    folder = tmp_path_factory.mktemp("ftp")
    authorizer = DummyAuthorizer()
    authorizer.add_user("ann", "pass-of-ann", str(folder), perm="elradfmwMT")
    logging.getLogger("pyftpdlib").setLevel(logging.ERROR)
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer})
    server = ThreadedFTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"timeout": 0.05}, daemon=True).start()
    host, port = server.socket.getsockname()
    yield f"ann:pass-of-ann@{host}:{port}", folder
    server.close_all()


@pytest.fixture
def everything() -> Callable[..., dict[str, Any]]:
    """A configuration with every hook that writes files; keyword arguments are keys of SOLVER."""

    def make(work_dir: str | Path, **keys: Any) -> dict[str, Any]:
        solver: dict[str, Any] = {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(work_dir),
            "MAX_EPOCHS": 2,
            "TRAIN_DATA": {"NAME": "Rows", "SIZE": 16, "BATCH_SIZE": 4},
            "EVAL_DATA": {"NAME": "Rows", "SIZE": 8, "BATCH_SIZE": 4},
            "MODEL": {"NAME": "NormDropNet"},
            "OPTIMIZER": {"NAME": "Adam", "LEARNING_RATE": 0.1},
            "METRICS": [{"NAME": "AccuracyMetric", "KEYS": ["logits", "y"]}],
            "SAVE_EVAL_DATA": True,
            "TRAIN_HOOKS": [
                {"NAME": "BackwardHook"},
                {"NAME": "LogHook", "LOG_INTERVAL": 1},
                {"NAME": "TensorboardLogHook", "LOG_INTERVAL": 1},
                {"NAME": "SafetensorsHook", "INTERVAL": 3},
                {"NAME": "CheckpointHook", "INTERVAL_STEPS": 2, "SAVE_LAST": True, "SAVE_BEST_BY": "-loss"},
            ],
            **keys,
        }
        return {"PLUGINS": [str(TASKS)], "ENV": {"DEVICE": "cpu"}, "SOLVER": solver}

    return make


@pytest.fixture
def scepter(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the real command in a process of its own, in `tmp_path`; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "scepter_core", *arguments],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
