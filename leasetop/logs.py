"""Log lines of the long-running commands: one fact each, as text for a person or as JSON for a log shipper."""

import json
import logging
import sys
from datetime import UTC, datetime

from leasetop import text

# What every record carries; the rest is what the caller said with `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Json(logging.Formatter):
    """A record as a JSON object, with what was said in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fact: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fact |= {name: value for name, value in vars(record).items() if name not in _OWN}
        return json.dumps(fact, default=str, ensure_ascii=True)


class Text(logging.Formatter):
    """A record as one line for a person."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        line = f"{at} {record.levelname.lower():<7} {text.safe(record.getMessage())}"
        return line + (" " + text.safe(self.formatException(record.exc_info)) if record.exc_info else "")


def to_stderr(as_json: bool) -> None:
    """Sends the log of leasetop's own loggers to standard error, from INFO up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if as_json else Text())
    logger = logging.getLogger("leasetop")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
