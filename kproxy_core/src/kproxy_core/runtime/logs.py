"""Logging: text for people or a line of JSON for machines, both by the standard library."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

LOGGER: Final = "kproxy"
LogFormat = Literal["text", "json"]

_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(log_format: LogFormat = "text", level: int = logging.INFO) -> None:
    """Send everything that kproxy logs to standard error, in one of two formats; replaces an earlier configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger(LOGGER)
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False


_CONTROLS: Final = frozenset({*range(0x20), *range(0x7F, 0xA0)}) - {ord("\t")}
_VISIBLE: Final = {number: f"\\x{number:02x}" for number in _CONTROLS} | {ord("\n"): "\n  "}
"""How control characters are shown."""


class TextFormatter(logging.Formatter):
    """A line for people. What a message quotes, a hostile name say, can neither forge a line of its own nor steer a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        """Format all but the exception: further lines are indented, other control characters spelt out."""
        return super().formatMessage(record).translate(_VISIBLE)


class JsonFormatter(logging.Formatter):
    """A line of JSON: time, level, message, and what the call gave as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line.update({key: value for key, value in vars(record).items() if key not in _OF_EVERY_RECORD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
