"""Lets `python -m hiflash` do what `hiflash` does."""

import sys

from hiflash.cli import main

if __name__ == "__main__":
    sys.exit(main())
