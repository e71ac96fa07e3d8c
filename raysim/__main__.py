"""``python -m raysim`` is ``raysim``."""

import sys

if not sys.flags.safe_path:
    # Python has put the working directory first, where a file may have the name of a module of Python or a library.
    sys.path.append(sys.path.pop(0))

from raysim.cli.main import main

if __name__ == "__main__":
    main()
