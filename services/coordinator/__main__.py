"""`python -m minedraft.services.coordinator` is `minedraft coordinator`."""

import sys

from minedraft.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "coordinator")
    main()
