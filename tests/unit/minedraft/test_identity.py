from __future__ import annotations

import os
import time

from minedraft import __version__
from minedraft.identity import draw_identity
from minedraft.plans import PROTOCOL_VERSION


def test_an_identity_is_this_process_and_another_one_every_time():
    before = time.time_ns()
    one, other = draw_identity(), draw_identity()
    assert one.instance_id != other.instance_id
    assert (one.pid, one.version) == (os.getpid(), __version__)
    assert one.protocol_version == PROTOCOL_VERSION
    assert before <= one.started_unix_ns <= time.time_ns()
