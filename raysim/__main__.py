"""``python -m raysim`` is ``raysim``."""

from raysim.cli.main import main

if __name__ == "__main__":
    main()
