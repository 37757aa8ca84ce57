"""`python -m minedraft.services.drafter` is `minedraft drafter`."""

import sys

from minedraft.cli.main import app

if __name__ == "__main__":
    sys.argv.insert(1, "drafter")
    app()
