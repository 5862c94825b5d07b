"""The line at the top: where we are, whether somebody sweeps, how old the data is, the server's time."""

from dataclasses import dataclass
from datetime import timedelta

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from leasetop import report, text
from leasetop.config import Environment
from leasetop.model import Snapshot

# Letters and ground far apart in light and dark themes, and reverse where there are no colours.
_COLOURS = {
    colour: f"bold {'black' if colour in ('yellow', 'green', 'cyan') else 'white'} on {colour}"
    for colour in ("red", "yellow", "green", "blue", "magenta", "cyan")
}
_SKEW = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Link:
    """How the screen stands to its data: how often it asks, paused or not, lost or not."""

    interval_s: float
    paused: bool
    error: str | None
    """Why the latest refresh failed."""
    lost: bool
    """Whether that was for want of a connection; else the server answered, and said no."""
    stale: bool
    slowed: bool = False
    """Whether it asks less often than it was told to, since its questions cost the server too much."""
    environment: Environment | None = None
    """What the operator calls this database, and in which colour."""
    read_only: bool = False


class Header(Static):
    """Shows a snapshot's origin and the age of its data; drops the least needed parts when there is no room."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._snapshot: Snapshot | None = None
        self._link: Link | None = None

    def show(self, snapshot: Snapshot | None, link: Link) -> None:
        """Both are remembered: `refresh_times` draws them again."""
        self._snapshot, self._link = snapshot, link
        self.set_class(link.stale, "-stale")
        self.refresh_times()

    def refresh_times(self) -> None:
        if self._link is not None:
            # Always one line: no layout of the screen is needed, and none of what is below is drawn again.
            self.update(self._line(self._snapshot, self._link), layout=False)

    def on_resize(self) -> None:
        self.refresh_times()

    def _line(self, snapshot: Snapshot | None, link: Link) -> Content:
        if snapshot is None:
            return Content.assemble((" leasetop  ", "bold"), link.error or "connecting ...")
        server, words = snapshot.server, report.watcher_words(snapshot)
        calm = words.startswith(("ok", "unknown"))
        environment = link.environment
        parts = {
            "name": ("leasetop", "bold"),
            "environment": (f" {environment.name} ", _COLOURS[environment.colour]) if environment else ("", ""),
            "where": (text.safe(server.title), "bold"),
            "version": (f"PostgreSQL {server.version.split('.')[0]}", ""),
            "read only": ("READ-ONLY", "bold $text-warning") if link.read_only else ("", ""),
            "role": ("STANDBY", "bold $text-warning") if server.standby else ("primary", ""),
            "queue": (text.safe(snapshot.queue), ""),
            "watcher": (f"watcher {words}", "" if calm else "bold $text-warning"),
            "skew": (self._skew(snapshot), "bold $text-warning"),
            "data": (self._data(snapshot, link), "bold $text-error" if link.stale else ""),
            "time": (f"{snapshot.clock.now():%H:%M:%S}Z", ""),
        }
        parts = {name: part for name, part in parts.items() if part[0]}
        shorter = [words.replace("oldest expired lease", "expired lease"), words.split(",")[0]]
        # What goes first when there is no room; where we are, who watches and how old the data is stay to the last.
        for name in ("version", "watcher", "time", "role", "queue", "watcher", "skew", "name"):
            if name not in parts or (name == "role" and server.standby):
                continue
            if sum(cell_len(said) + 2 for said, _ in parts.values()) <= self.size.width:
                break
            if name == "watcher":
                parts[name] = (f"watcher {shorter.pop(0)}", parts[name][1])
            else:
                del parts[name]
        spare = self.size.width - sum(cell_len(said) + 2 for said, _ in parts.values())
        pieces: list[str | tuple[str, str]] = [" "]
        for name, part in parts.items():
            # What changes with time stands at the right end, where it does not push the rest about.
            pieces += [" " * max(0, spare) if name == "watcher" else "", part, "  "]
        return Content.assemble(*pieces)

    def _skew(self, snapshot: Snapshot) -> str:
        """Nothing here is measured by this machine's clock, but its logs are read beside the server's."""
        if abs(snapshot.skew) < _SKEW + snapshot.took:
            return ""
        return f"this clock {text.duration(snapshot.skew)} {'ahead' if snapshot.skew > timedelta() else 'behind'}"

    def _data(self, snapshot: Snapshot, link: Link) -> str:
        age = text.duration(snapshot.clock.age())
        if link.error is not None:
            return f"{'LOST' if link.lost else 'REFUSED'}, data {age} old"
        if link.paused:
            return f"PAUSED, data {age} old"
        slowed = " (slowed: costly)" if link.slowed else ""
        return f"STALE {age}" if link.stale else f"live {round(link.interval_s, 1):g}s{slowed}"
