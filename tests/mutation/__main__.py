"""``python -m tests.mutation``."""

import sys

from tests.mutation.run import main

if __name__ == "__main__":
    sys.exit(main())
