"""Renders the metrics as text for Prometheus, with prometheus-client, outside of the event loop.

The loop only copies figures. Whoever asks more often than ten times per second gets the same text
again, so that no number of scrapes takes the loop's time.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from minedraft.services.coordinator.telemetry import vllm_names
from minedraft.services.coordinator.telemetry.families import NUM_SPANS, PREFIX, families

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from prometheus_client import Metric

    from minedraft.admin import Span, Status
    from minedraft.services.coordinator.telemetry.families import Family
    from minedraft.services.coordinator.telemetry.observed import Observed
    from minedraft.services.coordinator.telemetry.timeline import Timeline

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MIN_AGE_S: Final = 0.1
"""Age up to which a text is given again."""


class Exposition:
    """See the module docstring.

    Args:
        observed: What the engine sees.
        timeline: Recent steps.
        with_vllm: Whether the figures have vLLM's names too.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        observed: Observed,
        timeline: Timeline,
        *,
        with_vllm: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observed = observed
        self._timeline = timeline
        self._with_vllm = with_vllm
        self._clock = clock
        self._lock = asyncio.Lock()
        self._text = ""
        self._made_at = 0.0

    async def text(self, status: Callable[[], Awaitable[Status]]) -> str:
        """Return the text of now, or one that is hardly older.

        Args:
            status: Reads the coordinator's.
        """
        async with self._lock:
            if not self._text or self._clock() - self._made_at >= MIN_AGE_S:
                snapshot = _Snapshot(
                    await status(),
                    self._observed.copy(),
                    self._timeline.recent(NUM_SPANS),
                    with_vllm=self._with_vllm,
                )
                self._text = await asyncio.to_thread(snapshot.render)
                self._made_at = self._clock()
            return self._text


class _Snapshot(Collector):
    """Figures that do not change, as a collector of prometheus-client."""

    def __init__(
        self, status: Status, observed: Observed, spans: Sequence[Span], *, with_vllm: bool
    ) -> None:
        self._status, self._observed, self._spans = status, observed, spans
        self._with_vllm = with_vllm

    def collect(self) -> Iterator[Metric]:
        """Yield every family once."""
        ours = list(families(self._status, self._observed, self._spans))
        yield from (_metric(PREFIX, family) for family in ours)
        if self._with_vllm:
            for family in vllm_names.aliases(ours, self._status):
                yield _metric(vllm_names.PREFIX, family)

    def render(self) -> str:
        """Return Prometheus' text format, version 0.0.4."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()


def _metric(prefix: str, family: Family) -> Metric:
    """Convert a family. All of its samples have the same labels."""
    name = prefix + family.name
    labels, _ = family.samples[0] if family.samples else ((), 0.0)
    names = [label for label, _ in labels]
    if family.histogram is not None:
        bounds = [*map(floatToGoString, family.histogram.bounds), "+Inf"]
        buckets = list(zip(bounds, family.histogram.cumulative(), strict=True))
        histogram = HistogramMetricFamily(name, family.text, labels=names)
        histogram.add_metric([value for _, value in labels], buckets, family.histogram.total)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric: CounterMetricFamily | GaugeMetricFamily = kind(name, family.text, labels=names)
    for of_sample, value in family.samples:
        metric.add_metric([text for _, text in of_sample], value)
    return metric
