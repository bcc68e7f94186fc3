"""Files: every file that a run could lose is written whole or not at all."""

from scepter_core.io.filesystem import FileSystem

__all__ = ["FileSystem"]
