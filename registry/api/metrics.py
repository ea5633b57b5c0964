"""What Prometheus scrapes: requests by route, upload bytes, and what the database holds.

Several server processes share figures through files in `PROMETHEUS_MULTIPROC_DIR`, which `registry serve` sets before
they start; whichever answers a scrape adds up all of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from registry.errors import UnavailableError
from registry.service import figures
from registry.service.context import Context
from registry.service.figures import Figures

router = APIRouter(tags=["operations"])
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
FRESH_S: Final = 10.0
"""How long counts of rows are kept between scrapes, in seconds."""
_LABELS: Final = ("method", "route", "status")
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
REQUESTS: Final = Counter("registry_requests", "Requests answered.", _LABELS)
SECONDS: Final = Histogram("registry_request_seconds", "From request to end of answer.", _LABELS[:2], buckets=_BUCKETS)
IN_FLIGHT: Final = Gauge("registry_requests_in_flight", "Requests being answered.", multiprocess_mode="livesum")
RECEIVED: Final = Counter("registry_received_bytes", "Bytes of request bodies, uploads among them.", _LABELS[:2])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def get_metrics(request: Request) -> Response:
    """Figures in the text format of Prometheus."""
    registry = _processes()
    registry.register(_Rows(request.app.state.context, request.app.state.counted))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class Counted:
    """Row counts of one application, kept for a while: a scrape every second must not count every second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = float("-inf")
        self._figures: Figures | None = None

    def of(self, context: Context) -> Figures | None:
        """The figures; None while the database is away."""
        with self._lock:
            if time.monotonic() - self._at > FRESH_S:
                try:
                    self._figures = figures.count(context)
                except UnavailableError:
                    self._figures = None
                self._at = time.monotonic()
            return self._figures


class _Rows(Collector):
    def __init__(self, context: Context, counted: Counted) -> None:
        self._context = context
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        found = self._counted.of(self._context)
        if found is None:
            return
        for name, text, label, values in (
            ("registry_jobs", "Jobs by state.", "state", found.jobs),
            ("registry_webhook_deliveries", "Messages to webhooks by state.", "state", found.deliveries),
            ("registry_manifests", "Manifests by kind.", "kind", found.manifests),
        ):
            family = GaugeMetricFamily(name, text, labels=(label,))
            for value, count in values.items():
                family.add_metric((value,), count)
            yield family
        yield GaugeMetricFamily("registry_generations", "Generations of all channels.", found.generations)


def _processes() -> CollectorRegistry:
    """A registry of this process, or of every live one beside it."""
    made = CollectorRegistry()
    if FOLDER in os.environ:
        _forget_dead(Path(os.environ[FOLDER]))
        collect: Callable[[CollectorRegistry], object] = MultiProcessCollector
        collect(made)
    else:
        made.register(REGISTRY)
    return made


def _forget_dead(folder: Path) -> None:
    """What a killed process had in flight is in flight no more."""
    for path in folder.glob("gauge_live*_*.db"):
        if not Path(f"/proc/{path.stem.rpartition('_')[2]}").exists():
            path.unlink(missing_ok=True)
