"""Structured logs: one event a line on stderr, as JSON or for people.

An event of a request has its id, principal, method, route template, status and milliseconds, and nothing that a caller
sent: no path, query, header or body, so no secret can come into it.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, Literal

import structlog
from structlog.types import Processor

LogFormat = Literal["json", "console"]
_SHARED: Final[tuple[Processor, ...]] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
)
log: Final[structlog.stdlib.BoundLogger] = structlog.stdlib.get_logger("registry")


def configure(form: LogFormat) -> None:
    """Send every log of this process, the libraries' too, through one formatter to stderr."""
    if form == "json":
        renderer: Processor = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=list(_SHARED),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for quieter in ("alembic", "httpx", "werkzeug"):
        logging.getLogger(quieter).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
