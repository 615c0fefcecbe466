"""`python -m bullpen` is the command `bullpen`."""

from __future__ import annotations

import sys

from bullpen.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
