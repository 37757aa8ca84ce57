from __future__ import annotations

import json


def test_status_shows_mode_workers_and_totals(minedraft):
    minedraft("generate", "hi")
    text = minedraft("status").stdout
    for part in ("mode psd: 2 x 8 requests, k = 4", "verifier", "fake-drafter", "1 accepted"):
        assert part in text


def test_status_as_json_is_the_whole_status(minedraft):
    document = json.loads(minedraft("status", "--json").stdout)
    assert document["mode"] == {"num_batches": 2, "max_batch_size": 8, "num_draft_tokens": 4}
    assert [worker["role"] for worker in document["workers"]] == ["verifier", "drafter"]
