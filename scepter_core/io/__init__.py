"""Files: every file that a run could lose is written whole or not at all."""

from scepter_core.io.filesystem import FileSystem
from scepter_core.io.routing import RunFileSystem
from scepter_core.io.trying import RemoteError

__all__ = ["FileSystem", "RemoteError", "RunFileSystem"]
