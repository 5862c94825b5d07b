"""Every act of every screen, named once: keys, footer, palette and help are all made from this table."""

from dataclasses import dataclass
from enum import StrEnum

from textual.binding import Binding


class On(StrEnum):
    """A screen that has acts of its own."""

    JOBS = "jobs"
    WORKERS = "workers"
    JOURNAL = "journal"
    TRENDS = "trends"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Act:
    """`action` is the name of the screen's or the app's `action_...` method, with its argument."""

    action: str
    keys: str
    label: str
    """One word or two, for the footer."""
    help: str
    on: On
    footer: bool = True
    shown: str | None = None
    """How the key is written, where its name is not what is printed on it."""
    needs: str | None = None
    """The act of a profile that it begins: where the queue has none such, help and palette do not offer it."""

    @property
    def key(self) -> str:
        """The first key, as it is printed."""
        return self.shown or self.keys.split(",")[0]

    def binding(self) -> Binding:
        return Binding(self.keys, self.action, self.label, show=self.footer, key_display=self.shown)


_TABS = ("Active", "Pending", "Processing", "Stuck", "Failed", "Completed", "All")

ACTS = (
    Act(
        "details",
        "enter",
        "Details",
        "Everything about the job under the cursor: all attempts and acts",
        On.JOBS,
    ),
    Act(
        "back",
        "escape",
        "Close",
        "Close the details; else clear marks; else clear the filter",
        On.JOBS,
        footer=False,
        shown="esc",
    ),
    Act(
        "requeue",
        "r",
        "Requeue",
        "Return the marked jobs, or the one under the cursor, to Pending, guarded by what you see",
        On.JOBS,
    ),
    Act(
        "act('discard')",
        "D",
        "Discard",
        "Cancel jobs that wait, are stuck or failed",
        On.JOBS,
        footer=False,
        needs="discard",
    ),
    Act(
        "act('park')",
        "P",
        "Park",
        "Keep jobs from being run until a person decides",
        On.JOBS,
        footer=False,
        needs="park",
    ),
    Act(
        "act('run_now')",
        "N",
        "Run now",
        "Do not let scheduled jobs wait for their time",
        On.JOBS,
        footer=False,
        needs="run_now",
    ),
    Act("act('release')", "L", "Release", "Let parked jobs run again", On.JOBS, footer=False, needs="release"),
    Act(
        "undo",
        "u",
        "Undo",
        "Take back the latest requeue, while the job is untouched",
        On.JOBS,
        False,
        needs="undo_requeue",
    ),
    Act("find", "slash", "Filter", "Filter the jobs as you type; esc clears", On.JOBS, shown="/"),
    Act(
        "everywhere",
        "F",
        "Look through all",
        "Let the filter look through all jobs, not the first of each state",
        On.JOBS,
        False,
    ),
    Act("sort", "s", "Sort", "Sort by a column, or turn the order round", On.JOBS, footer=False),
    Act("jump", "J", "Jump", "Show the job of an id, wherever it is", On.JOBS, footer=False),
    Act("mark", "space", "Mark", "Mark the job under the cursor, or unmark it", On.JOBS, footer=False),
    Act(
        "mark_all",
        "asterisk",
        "Mark all",
        "Mark all jobs that match, not only those loaded",
        On.JOBS,
        footer=False,
        shown="*",
    ),
    Act("payload", "v", "Payload", "Show or hide the payload; secrets are hidden", On.JOBS, footer=False),
    Act("copy('id')", "y", "Copy id", "Copy the job's id to the clipboard (OSC 52)", On.JOBS, footer=False),
    Act("copy('job')", "Y", "Copy job", "Copy the job as JSON, with the payload if shown", On.JOBS, footer=False),
    Act("local_times", "z", "Times", "Absolute times in UTC, or as on this machine", On.JOBS, footer=False),
    Act("sweep", "S", "Sweep", "End expired leases, after a preview of exactly which", On.JOBS, needs="sweep"),
    Act("queues", "o", "Queues", "Choose another queue of this database", On.JOBS, footer=False),
    Act("workers", "w", "Workers", "Leases by owner, and the demo's worker processes", On.JOBS),
    Act("trends", "t", "Trends", "The last hour by the minute, poison jobs, noisy owners", On.JOBS, footer=False),
    *(
        Act(f"view('{name}')", str(n), name, f"Show the tab {name}", On.JOBS, footer=False)
        for n, name in enumerate(_TABS, start=1)
    ),
    Act("anomalies", "A", "Anomalies", "Rows that should not be there, and what they mean", On.JOBS, footer=False),
    Act("journal", "l", "Journal", "What operators did here, when and why", On.JOBS, footer=False),
    Act("export", "x", "Export", "Write the jobs that are shown to a file: CSV or JSON", On.JOBS, footer=False),
    Act("find", "slash", "Filter", "Only the acts that contain what you type", On.JOURNAL, shown="/"),
    Act("reload", "r", "Reload", "Read the journal again", On.JOURNAL),
    Act("export", "x", "Export", "Write the acts that are shown to a file: CSV or JSON", On.JOURNAL),
    Act("back", "escape,l", "Back", "Back to the jobs; from the filter to the table", On.JOURNAL, shown="esc"),
    Act("jobs", "enter", "Jobs", "The jobs of the owner under the cursor", On.WORKERS),
    Act("requeue_expired", "E", "Requeue", "Requeue all expired leases of this owner", On.WORKERS),
    Act("spawn", "n", "Spawn", "Start demo workers: real processes that claim jobs", On.WORKERS),
    Act(
        "crash",
        "c",
        "Crash",
        "SIGKILL the worker under the cursor: its leases run out by themselves",
        On.WORKERS,
    ),
    Act("freeze", "f", "Freeze", "SIGSTOP: it neither works nor heartbeats, and does not know it", On.WORKERS),
    Act("thaw", "t", "Thaw", "SIGCONT: it goes on; what it lost meanwhile is refused to it", On.WORKERS),
    Act("stop", "x", "Stop", "SIGTERM: it finishes or releases what it holds", On.WORKERS, False),
    Act("slow", "s", "Slow", "Eight times slower, or back to normal", On.WORKERS, False),
    Act("heartbeat", "b", "Beat", "Switch its heartbeats off or on", On.WORKERS, False),
    Act(
        *("race", "m", "Race", "The race, shown: reading-then-writing against one conditional UPDATE", On.WORKERS),
        footer=False,
    ),
    Act("back", "escape,w", "Back", "Back to the jobs", On.WORKERS, footer=False, shown="esc"),
    Act("show_job", "enter", "Show jobs", "The poison job, or the jobs of the noisy owner", On.TRENDS),
    Act("back", "escape,t", "Back", "Back to the jobs", On.TRENDS, shown="esc"),
    Act("pause", "p", "Pause", "Stop or go on refreshing; the age of the data is shown", On.EVERY, footer=False),
    Act("refresh_now", "R,f5", "Refresh", "Refresh now", On.EVERY, footer=False),
    Act("command_palette", "colon,ctrl+p", "Commands", "Find any act by its name", On.EVERY, shown=":"),
    Act("help", "question_mark,f1", "Help", "The keys and words of this screen", On.EVERY, shown="?"),
    Act("quit", "q", "Quit", "Leave; what the demo started ends with it", On.EVERY),
)


def of(screen: On) -> tuple[Act, ...]:
    """The acts of one screen, or those that every screen has."""
    return tuple(act for act in ACTS if act.on is screen)
