"""``python -m lab`` is ``lab``."""

from lab.cli.main import main

if __name__ == "__main__":
    main()
