"""A small language model of Python's own source code: a stream of text, and a transformer over characters."""

from __future__ import annotations

from scepter_pylm.model import CharGPT
from scepter_pylm.text import CHARACTERS, PythonSource, decode, encode, source_files

__all__ = ["CHARACTERS", "CharGPT", "PythonSource", "decode", "encode", "source_files"]
