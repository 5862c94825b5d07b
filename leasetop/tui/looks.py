"""The colour of each state, once: a name in style sheets and texts (`$state-stuck`), and the theme's colour behind it.

Colour is never the only sign: whatever has one also says it in words.
"""

from collections.abc import Mapping

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


def variables(theme: Mapping[str, str]) -> dict[str, str]:
    """`state-NAME` variables from those of the theme."""
    return {f"state-{name}": theme[colour] for name, colour in _COLOURS.items()}
