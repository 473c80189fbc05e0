"""``python -m anedl`` is the same as the ``anedl`` command."""

import sys

from anedl.cli import main

if __name__ == "__main__":
    sys.exit(main())
