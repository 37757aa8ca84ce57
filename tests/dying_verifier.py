"""A verifier process that ends at once when a step opens a row with a certain token in its prompt.

Run as a module with the token, then the options of `minedraft verifier`.
"""

from __future__ import annotations

import os
import sys

from minedraft.cli.main import main
from minedraft.services.verifier.verify_engine import VerifyEngine

CODE = 77


def deadly(token_id: int) -> None:
    step = VerifyEngine.step

    def dying(self, plan, *args, **kwargs):
        if any(token_id in row.prompt_token_ids for row in plan.opens):
            os._exit(CODE)  # as an out-of-memory killer or a fault of the driver would end it
        return step(self, plan, *args, **kwargs)

    VerifyEngine.step = dying


if __name__ == "__main__":
    deadly(int(sys.argv[1]))
    sys.argv[1] = "verifier"
    main()
