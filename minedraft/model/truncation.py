"""Top-k, then top-p, then min-p, exactly, without sorting the vocabulary. Draws nothing.

A row's surviving tokens are found among few *candidates*: all tokens above a threshold that the
maxima of the vocabulary's chunks give. Candidates are enough if they certainly hold every survivor
(there are k of them, or they carry the mass p, or the threshold is below min-p's); a row where they
are not tries a lower threshold, at last all tokens. Every path leads to the same set:

* tokens are ordered by score, equal scores by id; exactly k pass top-k;
* top-p keeps a token iff the mass of those before it is below p times the mass that passed top-k;
  masses are integers (`mass`), so neither order nor path nor batch mates nor the CPU can move the
  boundary;
* min-p keeps scores within log(min_p) of the best. The best token always stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from minedraft.model import mass
from minedraft.model.noise import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.types import RowParams

CHUNK: Final = GROUP  # a draw bounds a chunk by the noise of its group (`gumbel_max.candidates`)
"""Widths of score matrices are multiples of it; the padding is -inf."""

_LEVELS: Final = (64, 192, 512)  # chunks looked into before the whole vocabulary
_NUM_BUCKETS: Final = 1024
_BUCKETS_PER_NAT: Final = 32
_SLACK: Final = 1e-3  # on logarithmic bounds that only have to be safe
_OFF: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """Truncation of R rows as tensors [R]; `_OFF`, 1 and -inf are "off"."""

    top_k: Tensor
    top_p: Tensor
    log_min_p: Tensor
    width: int

    @classmethod
    def of(cls, params: Sequence[RowParams], device: torch.device, width: int = 0) -> Limits:
        """Limits of rows; `width` > 0 keeps at most so many of what passes the parameters."""
        log_min_p = [math.log(p.min_p) if p.min_p > 0 else -math.inf for p in params]
        return cls(
            torch.tensor([p.top_k if p.top_k > 0 else _OFF for p in params], device=device),
            torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device),
            torch.tensor(log_min_p, dtype=torch.float32, device=device),
            width if width > 0 else _OFF,
        )

    def __getitem__(self, rows: Tensor | slice) -> Limits:
        """Limits of some of the rows."""
        return Limits(self.top_k[rows], self.top_p[rows], self.log_min_p[rows], self.width)

    @property
    def has_k(self) -> Tensor:
        """[R] bool: top-k is on."""
        return self.top_k < _OFF

    @property
    def has_p(self) -> Tensor:
        """[R] bool: top-p is on."""
        return self.top_p < 1.0

    @property
    def needs_k_mass(self) -> Tensor:
        """[R] bool: top-p counts in shares of the mass that passed top-k."""
        return self.has_k & self.has_p


@dataclass(frozen=True, slots=True)
class Entries:
    """Tokens of several rows, flat: [N] each."""

    rows: Tensor
    token_ids: Tensor
    scores: Tensor
    """float32, relative to the row's best."""
    masses: Tensor
    """int64, of `mass`; zeros where no row needs it."""

    def __getitem__(self, index: Tensor) -> Entries:
        """Some of the entries."""
        return Entries(
            self.rows[index], self.token_ids[index], self.scores[index], self.masses[index]
        )

    def moved(self, offset: int) -> Entries:
        """The same entries `offset` rows further down."""
        return Entries(self.rows + offset, self.token_ids, self.scores, self.masses)


def is_truncated(params: RowParams) -> bool:
    """Whether any of top-k, top-p and min-p is on."""
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def concatenate(parts: Sequence[Entries]) -> Entries:
    """Join entries."""
    return Entries(
        torch.cat([part.rows for part in parts]),
        torch.cat([part.token_ids for part in parts]),
        torch.cat([part.scores for part in parts]),
        torch.cat([part.masses for part in parts]),
    )


def candidates(scores: Tensor, limits: Limits) -> tuple[Entries, Tensor]:
    """Find a superset of what truncation keeps, with every token that ranks above its members.

    Args:
        scores: [R, V'] float32, relative to each row's best; V' a multiple of CHUNK.
        limits: Of the R rows; each has something on, or a width.

    Returns:
        Entries (rows 0..R-1; ids ascend within a row) and [R] float64, each row's mass in units
        of `Entries.masses` (zeros if no row has top-p).
    """
    has_mass = bool(limits.has_p.any())
    totals = scores.new_zeros(scores.shape[0], dtype=torch.float64)
    if has_mass:
        totals = mass.totals(scores).double()
    maxima = scores.view(scores.shape[0], -1, CHUNK).amax(-1)  # [R, C]
    num_chunks = maxima.shape[1]
    pending = torch.arange(scores.shape[0], device=scores.device)
    parts: list[Entries] = []
    for count in _LEVELS:
        if count >= num_chunks or len(pending) == 0:
            break
        top = maxima[pending].topk(count, dim=-1)
        threshold = top.values[:, -1]
        chosen = top.indices.sort(-1).values + (pending * num_chunks)[:, None]  # ids will ascend
        above_it = torch.nextafter(threshold, threshold.new_tensor(torch.inf))
        rows, token_ids = at_least(scores, chosen.flatten(), above_it.repeat_interleave(count))
        found = _entries(scores, rows, token_ids, has_mass=has_mass)
        enough = _are_enough(found, threshold, pending, limits, totals)
        parts.append(found[enough[found.rows]])
        pending = pending[~enough[pending]]
    if len(pending) > 0:
        threshold = _last_threshold(limits[pending], totals[pending], scores.shape[1])
        place, token_ids = (scores[pending] > threshold[:, None]).nonzero(as_tuple=True)
        found = _entries(scores, pending[place], token_ids, has_mass=has_mass)
        parts.append(_without_tail(found, limits, totals))
    return concatenate(parts), totals


def truncate(entries: Entries, totals: Tensor, limits: Limits) -> Entries:
    """Keep what top-k, top-p and min-p keep.

    Args:
        entries: Of `candidates`, rows 0..R-1.
        totals: [R] float64, of `candidates`.
        limits: Of the R rows.

    Returns:
        Survivors, by row, best first (equal scores by id); at least one per row.
    """
    entries = entries[torch.sort(_order(entries), stable=True).indices]
    rows, device = entries.rows, entries.rows.device
    count = rows.shape[0]
    num_rows = totals.shape[0]
    starts = torch.searchsorted(rows, torch.arange(num_rows, device=device))
    rank = torch.arange(count, device=device) - starts[rows]
    keep = rank < limits.top_k[rows]
    before = entries.masses.cumsum(0) - entries.masses
    before -= before[starts][rows]
    passed = torch.zeros(num_rows, dtype=torch.int64, device=device)
    passed.index_add_(0, rows, entries.masses * keep)
    base = torch.where(limits.needs_k_mass, passed.double(), totals)
    target = torch.where(limits.has_p, base * limits.top_p, math.inf)
    keep &= (before < target[rows]) & (entries.scores >= limits.log_min_p[rows])
    keep &= rank < limits.width
    return entries[keep | (rank == 0)]


def _entries(scores: Tensor, rows: Tensor, token_ids: Tensor, *, has_mass: bool) -> Entries:
    chosen = scores[rows, token_ids]
    masses = mass.masses(chosen) if has_mass else torch.zeros_like(rows)
    return Entries(rows, token_ids, chosen, masses)


def at_least(scores: Tensor, chunks: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens at or above thresholds in some chunks of a score matrix.

    Args:
        scores: [R, V'] contiguous, V' a multiple of CHUNK.
        chunks: [n] int64, indices of chunks in the flat matrix.
        thresholds: [n], one a chunk.

    Returns:
        [N] rows and [N] token ids, in the order of chunks and within a chunk of ids.
    """
    picked = scores.view(-1, CHUNK).index_select(0, chunks)  # [n, CHUNK]
    place, lane = (picked >= thresholds[:, None]).nonzero(as_tuple=True)
    flat = chunks[place] * CHUNK + lane
    return flat // scores.shape[1], flat % scores.shape[1]


def _are_enough(
    found: Entries, threshold: Tensor, pending: Tensor, limits: Limits, totals: Tensor
) -> Tensor:
    """[R] bool: the tokens above the threshold certainly hold every survivor of the row."""
    num_rows = len(totals)
    count = torch.bincount(found.rows, minlength=num_rows)
    carried = torch.zeros(num_rows, dtype=torch.int64, device=totals.device)
    carried.index_add_(0, found.rows, found.masses)
    lowest = totals.new_full((num_rows,), torch.inf, dtype=torch.float32)
    lowest[pending] = threshold
    by_k = count >= limits.top_k
    by_p = limits.has_p & ~limits.has_k & (carried >= totals * limits.top_p) & (count > 0)
    by_rest = (lowest < limits.log_min_p) | (count >= limits.width)
    return by_k | by_p | (by_rest & ~limits.needs_k_mass)


def _last_threshold(limit: Limits, total: Tensor, width: int) -> Tensor:
    """[P] float32: no token at or below it survives; -inf where that takes every token.

    Tokens below (1 - p) total / V together weigh less than (1 - p) total, so the others reach p.
    Rounding may have added half a unit to each.
    """
    share = ((1.0 - limit.top_p) * total / width - 0.5).clamp_(min=0.0)
    by_p = (share / mass.MASS_SCALE).log().float() - _SLACK
    by_p = torch.where(limit.has_p & ~limit.has_k, by_p, -torch.inf)
    by_min_p = torch.where(limit.needs_k_mass, -torch.inf, limit.log_min_p - _SLACK)
    return torch.maximum(by_p, by_min_p)


def _without_tail(found: Entries, limits: Limits, totals: Tensor) -> Entries:
    """Drop what certainly ranks behind top-p's boundary, so that less has to be sorted."""
    if len(found.rows) < _NUM_BUCKETS * len(totals):
        return found
    bucket = (found.scores * -_BUCKETS_PER_NAT).clamp_(max=_NUM_BUCKETS - 1).to(torch.int64)
    masses = torch.zeros(len(totals) * _NUM_BUCKETS, dtype=torch.int64, device=totals.device)
    masses.index_add_(0, found.rows * _NUM_BUCKETS + bucket, found.masses)
    reached = masses.view(len(totals), _NUM_BUCKETS).cumsum(1)
    last = (reached < (totals * limits.top_p)[:, None]).sum(1)  # its bucket reaches the target
    last = torch.where(limits.has_p & ~limits.has_k, last, _NUM_BUCKETS)
    return found[bucket <= last[found.rows]]


def _order(entries: Entries) -> Tensor:
    """[N] int64 that ascends by row, then by falling score; equal scores are equal."""
    pattern = (entries.scores + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    rising = pattern ^ ((pattern >> 31) & 0x7FFFFFFF)  # float order as integer order
    return (entries.rows << 32) - rising.to(torch.int64)
