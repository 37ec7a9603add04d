"""Structured logs: one JSON line per event, in a file that is rotated."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

import structlog

FILE_BYTES_MAX = 10 * 2**20
FILES_KEPT = 5


def write_logs(path: Path) -> None:
    """Send what the product logs to a file; the terminal belongs to progress."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(
        path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, delay=True
    )
    logger = logging.getLogger("penstock")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=lambda *_: logger,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
