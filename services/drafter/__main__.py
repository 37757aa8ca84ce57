"""`python -m minedraft.services.drafter` is `minedraft drafter`."""

import sys

from minedraft.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "drafter")
    main()
