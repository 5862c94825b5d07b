"""What a queue's rows should never look like, each as a line of the filter, and what it means when they do."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A kind of row that should not be there."""

    name: str
    line: str
    """The filter that shows the rows."""
    means: str
    needs: tuple[str, ...]
    """Canonical columns without which it cannot be told."""


KNOWN = (
    Anomaly(
        "held by nobody",
        "state:processing no:owner",
        "In Processing, but no owner is recorded: no worker knows that it holds this job.",
        ("owner",),
    ),
    Anomaly(
        "held without a lease",
        "state:no-lease",
        "In Processing without an end: no sweep and no worker will ever take it back; requeue it.",
        (),
    ),
    Anomaly(
        "waiting with an owner",
        "state:pending,scheduled has:owner",
        "Pending, yet an owner is recorded: something set it back without clearing the lease, past the protocol.",
        ("owner",),
    ),
    Anomaly(
        "done with a live lease",
        "state:completed left>0s",
        "Completed, yet a lease runs: its worker may still be at work on it.",
        ("lease_until",),
    ),
    Anomaly(
        "unknown status",
        "state:other",
        "A status that neither leasetop nor, most likely, any worker knows: nobody will touch these jobs.",
        (),
    ),
    Anomaly(
        "attempts above the cap",
        "-state:completed attempts>max",
        "More attempts were counted than are allowed: something claimed past the limit.",
        ("attempts", "max_attempts"),
    ),
)


@dataclass(frozen=True, slots=True)
class Late:
    """A completion that was refused, since the lease had passed on: it may have been done twice."""

    job: str
    attempt: int | None
    owner: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found in one look."""

    counts: Mapping[Anomaly, int]
    """Those that have rows; never more than the filter looks at."""
    late: tuple[Late, ...]
    """Of the last 24 hours, newest first, among the newest of the history."""

    @property
    def total(self) -> int:
        """Rows and late completions together."""
        return sum(self.counts.values()) + len(self.late)
