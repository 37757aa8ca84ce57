"""`python -m minedraft.services.gateway` is `minedraft gateway`."""

import sys

from minedraft.cli.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "gateway")
    main()
