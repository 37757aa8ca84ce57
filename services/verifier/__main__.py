"""`python -m minedraft.services.verifier` is `minedraft verifier`."""

import sys

from minedraft.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "verifier")
    main()
