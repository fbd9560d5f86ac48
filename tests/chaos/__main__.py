"""``python -m tests.chaos``."""

import sys

from tests.chaos.run import main

if __name__ == "__main__":
    sys.exit(main())
