"""`python -m scepter_core`: the same as the command `scepter`."""

from __future__ import annotations

import sys

from scepter_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
