"""``python -m indexmill`` is the ``indexmill`` command."""

import sys

from indexmill.command import main

if __name__ == "__main__":
    sys.exit(main())
