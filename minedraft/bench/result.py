"""The figures of a bench and their JSON form. Pure."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minedraft.api import SpeculationStats
from minedraft.bench import prediction
from minedraft.bench.prediction import Legs
from minedraft.bench.step_sizes import step_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from minedraft.admin import Span
    from minedraft.bench.load import Record
    from minedraft.bench.modes import Measurement
    from minedraft.bench.steady import Steady


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One measurement."""

    measurement: Measurement
    records: tuple[Record, ...]
    """One per prompt, in their order."""
    steady: Steady
    spans: tuple[Span, ...]
    wall_s: float
    num_stale_drafts: int = 0
    """Drafts that came too late for their verify step, over a slow or broken link."""
    cores: str | None = None
    """Cores that computed; None: unknown."""

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """Output token ids, in the order of the prompts."""
        return tuple(record.token_ids for record in self.records)

    @property
    def speculation(self) -> SpeculationStats:
        """All requests together."""
        return sum((record.speculation for record in self.records), SpeculationStats())

    def to_json(self) -> dict[str, Any]:
        """Figures by name; times in ms."""
        mode, steady, stats = self.measurement.mode, self.steady, self.speculation
        num_tokens = sum(len(ids) for ids in self.outputs)
        return {
            "num_batches": mode.num_batches,
            "max_batch_size": mode.max_batch_size,
            "num_draft_tokens": mode.num_draft_tokens,
            "cores": self.cores,
            "num_requests": len(self.records),
            "tokens_per_s": steady.tokens_per_s,
            "tokens_per_s_whole_run": num_tokens / self.wall_s if self.wall_s else 0.0,
            "acceptance_rate": stats.acceptance_rate,
            "mean_acceptance_length": stats.mean_acceptance_length,
            "acceptance_histogram": list(stats.acceptance_histogram),
            "verify_ms_p50": steady.verify_ms,
            "verify_forward_ms_p50": steady.forward_ms,
            "verify_sample_ms_p50": steady.sample_ms,
            "draft_ms_p50": steady.draft_ms,
            "step_ms_p50": steady.step_ms,
            "bubble_ms_p50": steady.bubble_ms,
            "stale_drafts": self.num_stale_drafts,
            "steady_steps": steady.num_steps,
            "steady_rows": steady.num_rows,
            **_percentiles("ttft_ms", [record.ttft_s for record in self.records]),
            **_percentiles("tpot_ms", [record.tpot_s for record in self.records]),
            **_percentiles("worst_gap_ms", [record.worst_gap_s for record in self.records]),
            "worst_gap_ms": 1e3 * max((record.worst_gap_s for record in self.records), default=0.0),
            **_percentiles("e2e_ms", [record.e2e_s for record in self.records]),
            "wall_s": self.wall_s,
            "steps": [size.to_json() for size in step_sizes(self.spans)],
            "requests": [_request(record) for record in self.records],
            "outputs_sha256": sha256_of(self.outputs),
        }


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All measurements of one bench."""

    modes: Mapping[str, ModeResult]
    """By name: `ar`, `ar_2m`, `ar_all`, `sd`, `sd_2m`, `psd`."""
    synthetic_acceptance: float | None
    """None: the drafter's own drafts."""
    reference: tuple[tuple[int, ...], ...]
    """Outputs to compare the others with: those of AR if it was measured."""
    about: Mapping[str, Any]
    """Options, models and machine."""

    @property
    def identical_outputs(self) -> bool:
        """Whether all modes gave the same tokens for every prompt."""
        return all(result.outputs == self.reference for result in self.modes.values())

    @property
    def agreement(self) -> float:
        """Share of prompts for which all modes gave the same tokens."""
        outputs = [result.outputs for result in self.modes.values()]
        same = [
            all(output[i] == expected for output in outputs)
            for i, expected in enumerate(self.reference)
        ]
        return sum(same) / len(same) if same else 1.0

    @property
    def overlap_efficiency(self) -> float | None:
        """max(V, t) / step under PSD; 1: the longer half hides the shorter one completely."""
        psd = self.modes.get("psd")
        if psd is None or not psd.steady.step_ms:
            return None
        return max(psd.steady.verify_ms, psd.steady.draft_ms) / psd.steady.step_ms

    def ratio(self, name: str, over: str) -> float | None:
        """Tokens/s of one mode over those of another; None if one was not measured."""
        above, below = self.modes.get(name), self.modes.get(over)
        if above is None or below is None or not below.steady.tokens_per_s:
            return None
        return above.steady.tokens_per_s / below.steady.tokens_per_s

    @property
    def psd_over_sd_predicted(self) -> float | None:
        """PSD's throughput over SD's at equal batch, by V and t; None: not both were measured."""
        return self._predicted("sd", num_batches=1)

    @property
    def psd_over_sd_2m_predicted(self) -> float | None:
        """The same at equal concurrency: one batch of 2M against two of M."""
        return self._predicted("sd_2m", num_batches=2)

    def _predicted(self, over: str, *, num_batches: int) -> float | None:
        psd, sd = self.modes.get("psd"), self.modes.get(over)
        if psd is None or sd is None:
            return None
        alone = Legs(sd.steady.verify_ms, sd.steady.draft_ms)
        beside = Legs(psd.steady.verify_ms, psd.steady.draft_ms)
        return prediction.psd_over_sd(alone, beside, num_batches=num_batches)

    @property
    def beside_over_alone(self) -> tuple[float, float] | None:
        """V and t under PSD over V and t under SD at equal batch; None: not both were measured.

        Over 1 where the two legs share memory, cache or power.
        """
        psd, sd = self.modes.get("psd"), self.modes.get("sd")
        if psd is None or sd is None or not sd.steady.verify_ms or not sd.steady.draft_ms:
            return None
        return (
            psd.steady.verify_ms / sd.steady.verify_ms,
            psd.steady.draft_ms / sd.steady.draft_ms,
        )

    def to_json(self) -> dict[str, Any]:
        """Build the document that `minedraft bench --json` writes."""
        return {
            **self.about,
            "synthetic_acceptance": self.synthetic_acceptance,
            "modes": {name: result.to_json() for name, result in self.modes.items()},
            "identical_outputs": self.identical_outputs,
            "agreement": self.agreement,
            "overlap_efficiency": self.overlap_efficiency,
            "psd_over_sd": self.ratio("psd", "sd"),
            "psd_over_sd_predicted": self.psd_over_sd_predicted,
            "psd_over_sd_2m": self.ratio("psd", "sd_2m"),
            "psd_over_sd_2m_predicted": self.psd_over_sd_2m_predicted,
            "beside_over_alone": self.beside_over_alone,
            "psd_over_ar": self.ratio("psd", "ar"),
            "psd_over_ar_2m": self.ratio("psd", "ar_2m"),
            "psd_over_ar_all": self.ratio("psd", "ar_all"),
            "sd_over_ar": self.ratio("sd", "ar"),
        }


def sha256_of(outputs: Sequence[Sequence[int]]) -> str:
    """Hash outputs: for each, in order, its length and its ids as little-endian 32-bit words."""
    digest = hashlib.sha256()
    for ids in outputs:
        digest.update(struct.pack(f"<{len(ids) + 1}I", len(ids), *ids))
    return digest.hexdigest()


def _request(record: Record) -> dict[str, Any]:
    """Write what a simulator needs to send the same request again."""
    return {
        "arrival_ms": record.sent_s * 1e3,
        "num_prompt_tokens": record.num_prompt_tokens,
        "num_output_tokens": len(record.token_ids),
        "num_draft_tokens": record.speculation.num_draft_tokens,
        "acceptance_histogram": list(record.speculation.acceptance_histogram),
    }


def _percentiles(name: str, values_s: Sequence[float]) -> dict[str, float]:
    if not values_s:
        return {f"{name}_p50": 0.0, f"{name}_p99": 0.0}
    p50, p99 = np.percentile(values_s, (50, 99))
    return {f"{name}_p50": float(p50) * 1e3, f"{name}_p99": float(p99) * 1e3}
