from __future__ import annotations

import pytest

from minedraft.api import Finished, RequestTiming, Usage
from minedraft.plans import DraftResult, StepTiming, VerifyResult
from minedraft.services.coordinator.telemetry.observed import Observed
from minedraft.types import FinishReason

S = 1_000_000_000


def finished(queue_s=1, ttft_s=3, e2e_s=13, num_output=11):
    return Finished(
        0,
        FinishReason.STOP,
        usage=Usage(7, num_output, 2),
        timing=RequestTiming(queue_s * S, ttft_s * S, e2e_s * S),
    )


def totals(observed: Observed) -> dict[str, tuple[int, float]]:
    names = [name for name in vars(observed) if hasattr(getattr(observed, name), "cumulative")]
    return {
        name: (getattr(observed, name).count, pytest.approx(getattr(observed, name).total))
        for name in names
        if getattr(observed, name).count
    }


def test_a_request_is_cut_into_its_phases():
    observed = Observed()
    observed.first_token(3 * S, 7, 2)
    observed.next_tokens(S // 2)
    observed.finished(finished(), 16)
    assert totals(observed) == {
        "ttft_s": (1, 3),
        "gap_s": (1, 0.5),
        "queue_s": (1, 1),
        "prefill_s": (1, 2),
        "decode_s": (1, 10),
        "inference_s": (1, 12),
        "e2e_s": (1, 13),
        "token_s": (1, 1),
        "prompt_tokens": (1, 7),
        "output_tokens": (1, 11),
        "max_tokens": (1, 16),
    }
    assert (observed.num_prompt_tokens, observed.num_cached_tokens) == (7, 2)


def test_what_a_request_never_reached_has_no_time():
    observed = Observed()
    observed.finished(finished(queue_s=0, ttft_s=0, num_output=0), 16)
    assert totals(observed).keys() == {"e2e_s", "prompt_tokens", "output_tokens", "max_tokens"}
    observed = Observed()
    observed.finished(finished(num_output=1), 16)
    assert "token_s" not in totals(observed)  # there is no second token


def draft(start, end):
    timing = StepTiming(start * S, (end - start) * S)
    return DraftResult(1, 0, 4, 2, timing, 1)


def verify(start, end, **timing):
    return VerifyResult(1, 0, (), StepTiming(start * S, (end - start) * S, **timing))


def test_devices_overlap_where_both_compute_whoever_is_told_first():
    for steps in (
        [draft(0, 4), verify(3, 9), draft(5, 7), draft(8, 12)],
        [draft(0, 4), draft(5, 7), draft(8, 12), verify(3, 9)],
        [verify(3, 9), draft(0, 4), draft(5, 7), draft(8, 12)],
    ):
        observed = Observed()
        for step in steps:
            (observed.drafted if isinstance(step, DraftResult) else observed.verified)(step)
        assert observed.overlap_ns == (1 + 2 + 1) * S
        assert observed.draft_ns == 10 * S
        assert observed.verify_ns == 6 * S


def test_a_step_tells_where_its_time_went():
    observed = Observed()
    observed.verified(verify(0, 5, wait_ns=3, idle_ns=4, bubble_ns=2))
    observed.verified(verify(5, 9, wait_ns=30, idle_ns=40, bubble_ns=20))
    assert (observed.wait_ns, observed.idle_ns, observed.bubble_ns) == (33, 44, 22)
    assert observed.verify_rows.count == 2


def test_a_copy_stays_as_it_is():
    observed = Observed()
    observed.finished(finished(), 16)
    same = observed.copy()
    observed.finished(finished(), 16)
    observed.verified(verify(0, 5))
    assert same.e2e_s.count == 1
    assert same.verify_ns == 0
