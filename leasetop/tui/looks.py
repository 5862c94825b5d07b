"""The colour of each state, once: a name in style sheets and texts (`$state-stuck`), and the theme's colour behind it.

Colour is never the only sign: whatever has one also says it in words.
"""

from collections.abc import Mapping
from pathlib import Path

import platformdirs

_COLOURS = {
    "stuck": "text-error",
    "failed": "text-error",
    "expiring": "text-warning",
    "processing": "text-success",
    "pending": "text-primary",
    "scheduled": "text-secondary",
    "completed": "foreground-muted",
    "cancelled": "foreground-muted",
    "other": "text-warning",
}


# Of a terminal with 16 colours, bright ones and dark ones: a theme's shades would all come out grey there.
_FEW = {
    "text-error": ("#ff5555", "#aa0000"),
    "text-warning": ("#ffff55", "#aa5500"),
    "text-success": ("#55ff55", "#00aa00"),
    "text-primary": ("#55ffff", "#0000aa"),
    "text-secondary": ("#ff55ff", "#aa00aa"),
    "foreground-muted": ("#aaaaaa", "#555555"),
}


def variables(theme: Mapping[str, str], few: bool = False, dark: bool = True) -> dict[str, str]:
    """`state-NAME` variables from those of the theme; `few` for a terminal with 16 colours, on a dark ground or not."""
    if few:
        return {f"state-{name}": _FEW[colour][0 if dark else 1] for name, colour in _COLOURS.items()}
    return {f"state-{name}": theme[colour] for name, colour in _COLOURS.items()}


def _file() -> Path:
    return Path(platformdirs.user_state_path("leasetop")) / "theme"


def theme(wished: str | None, known: Mapping[str, object], usual: str) -> str:
    """The theme to begin with: of the settings, or the one that was chosen last, or the usual one."""
    try:
        chosen = wished or _file().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        # None was chosen yet.
        return usual
    return chosen if chosen in known else usual


def remember(name: str) -> None:
    """For the next time. Raises OSError."""
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{name}\n", encoding="utf-8")
