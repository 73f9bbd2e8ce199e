"""``python -m fullrank`` is ``fullrank``."""

from fullrank.cli import main

if __name__ == "__main__":
    main()
