"""`python -m speechmix COMMAND`: the command line where the script `speechmix` is not on the path.

In: the arguments of the command. Out: its exit status; see `interfaces/cli/`.
"""

import sys

from .interfaces.cli import main

if __name__ == "__main__":
    sys.exit(main())
