"""`python -m minedraft.services.coordinator` is `minedraft coordinator`."""

import sys

from minedraft.cli.main import app

if __name__ == "__main__":
    sys.argv.insert(1, "coordinator")
    app()
