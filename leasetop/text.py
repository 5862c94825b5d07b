"""Any value of the database -> safe, short text for a terminal; times and amounts -> words.

What comes from a table is data: never markup, never a terminal escape, never a line break in a row. Everything that
a person reads passes through here; nothing here knows of widgets or SQL. Widths are terminal cells, not characters.
"""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rich.cells import cell_len, set_cell_size

# Longer values are cut before anything else looks at them: a million characters must not cost a refresh.
LONGEST = 20_000

_NAMED = {"\n": "⏎", "\r": "␍", "\t": "→", "\x1b": "␛", "\x00": "␀", "\x07": "␇"}
# Cc: C0 and C1 controls, DEL. Cf: bidi overrides, zero-width, tags. Cs: lone surrogates. Zl, Zp: line breaks.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_PLAIN = re.compile(r"[ -~]*")


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    # U+200D joins emoji; alone it is invisible, and terminals disagree on its width: shown apart, always aligned.
    category = unicodedata.category(character)
    if category in _UNSAFE:
        return f"‹{ord(character):02x}›"
    return character


def safe(value: object, longest: int = LONGEST) -> str:
    """Any value as one line without controls, escapes or invisible characters. None is shown as an empty text."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    cut = text[:longest]
    if not _PLAIN.fullmatch(cut):
        cut = "".join(map(_visible, cut))
    return cut + "…" if len(text) > longest else cut


def safe_lines(value: object, longest: int = LONGEST) -> str:
    """As `safe`, but line breaks and tabs stay: for a pane that wraps."""
    if value is None:
        return ""
    text = str(value)
    cut = text[:longest].replace("\r\n", "\n").replace("\t", "    ")
    lines = (safe(line, longest) for line in cut.split("\n"))
    rest = f"\n… {len(text) - longest:,} more characters" if len(text) > longest else ""
    return "\n".join(lines) + rest


def fit(text: str, width: int) -> str:
    """Exactly `width` terminal cells: padded, or cut with an ellipsis. Wide characters stay aligned."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)


def right(text: str, width: int) -> str:
    """As `fit`, but set to the right."""
    length = cell_len(text)
    return " " * (width - length) + text if length <= width else fit(text, width)


def duration(span: timedelta) -> str:
    """A span in its two largest units: 41s, 2m13s, 3h05m, 12d04h. Negative spans lose their sign; say it in words."""
    seconds = int(abs(span.total_seconds()))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days >= 100_000:
        return "∞"
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    if minutes:
        return f"{minutes}m{seconds:02}s"
    return f"{seconds}s"


def instant(moment: datetime | None, local: bool = False) -> str:
    """An absolute time, to the second: in UTC, or in this machine's zone with its offset."""
    if moment is None:
        return "-"
    if moment.year in (1, 9999):
        return "-infinity" if moment.year == 1 else "infinity"
    if local:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S%z")
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def count(number: int, capped: bool = False) -> str:
    """A count with thin separators; a capped one is honest about it: `10 000+`."""
    return f"{number:,}".replace(",", " ") + ("+" if capped else "")


def plural(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def bar(part: float, width: int) -> str:
    """A bar of `width` cells, `part` (0 to 1) of it full, in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as blocks; zero is the lowest block, so that silence shows as a line."""
    shown = list(values)[-width:]
    top = max(shown, default=0) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(7, round(7 * value / top))] for value in shown)
