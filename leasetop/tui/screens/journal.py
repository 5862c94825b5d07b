"""The journal: what operators did to this queue, when, why, what they saw, and what came of it."""

from datetime import datetime

from textual import on, work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Input, Static

from leasetop import text
from leasetop.errors import LeasetopError
from leasetop.journal import Entry
from leasetop.model import written
from leasetop.tui import acts
from leasetop.tui.screens.board import Board
from leasetop.tui.widgets.header import Header
from leasetop.tui.widgets.rows import Cell, Column, Rows

_MOST = 500
"""Acts that are read."""


class JournalScreen(Board):
    """Read when it is opened, and again with every key that asks for it."""

    ACTS = acts.of(acts.On.JOURNAL)
    BINDINGS = [*(act.binding() for act in ACTS)]

    def __init__(self) -> None:
        super().__init__()
        self._entries: tuple[Entry, ...] = ()
        self._error = ""
        self._empty = "asking ..."

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static(id="summary", markup=False)
        yield Input(placeholder="any part of an actor, act, job, reason or result", compact=True, id="narrow")
        yield Rows[Entry](
            [
                Column("WHEN", 20, lambda entry, _: (text.instant(entry.at), "")),
                Column("BY", 12, lambda entry, _: (text.safe(entry.actor), ""), share=1),
                Column("ACT", 12, _act_cell, share=1),
                Column("JOB", 8, lambda entry, _: (text.safe(written(entry.job)), ""), share=1),
                Column("REASON", 12, lambda entry, _: (text.safe(entry.reason) or "-", ""), share=3),
                Column("RESULT", 12, _result_cell, share=3, rank=1),
            ],
            empty="asking ...",
            id="entries",
        )
        with VerticalScroll(id="entry"):
            yield Static(markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#narrow").display = False
        self.query_one(Rows).focus()
        self.load()

    @work(exclusive=True, group="journal")
    async def load(self) -> None:
        try:
            self._entries = await self.top.queue.read_journal(_MOST)
            self._error, self._empty = "", "Nothing was done here yet."
        except LeasetopError as error:
            self._error = str(error)
            self.top.say(self._error, failed=True)
        self._show()

    @property
    def _shown(self) -> list[Entry]:
        wanted = self.query_one("#narrow", Input).value.lower()
        return [entry for entry in self._entries if wanted in _whole(entry)]

    def _show(self) -> None:
        shown = self._shown
        empty = "" if self._error else "No act matches." if self._entries else self._empty
        self.query_one(Rows).show(((n, entry) for n, entry in enumerate(shown)), empty=empty)
        title = f" {text.safe(self.top.queue.profile.title)}: {text.plural(len(shown), 'act')}, newest first"
        if len(self._entries) >= _MOST:
            title += f", of the newest {text.count(_MOST)}"
        if self._error:
            title = f" The journal cannot be read: {text.safe(self._error)}"
        self.query_one("#summary", Static).update(Content(title))

    @on(Rows.Moved, "#entries")
    def _moved(self) -> None:
        entry = self.query_one(Rows).selected
        said = "" if entry is None else _told(entry)
        self.query_one("#entry Static", Static).update(Content(said))

    def action_find(self) -> None:
        narrow = self.query_one("#narrow", Input)
        narrow.display = True
        self.set_focus(narrow)

    @on(Input.Changed, "#narrow")
    def _narrowed(self) -> None:
        self._show()

    @on(Input.Submitted, "#narrow")
    def _narrow_left(self) -> None:
        self.query_one(Rows).focus()

    def action_back(self) -> None:
        narrow = self.query_one("#narrow", Input)
        if narrow.display:
            narrow.value, narrow.display = "", False
            self.query_one(Rows).focus()
        else:
            self.top.pop_screen()

    def action_reload(self) -> None:
        self.load()

    def action_export(self) -> None:
        self.top.export("acts", [_row(entry) for entry in self._shown])


def _act_cell(entry: Entry, _: int) -> Cell:
    """A colour alone would not say that it was refused."""
    return (text.safe(entry.act), "") if entry.done else (f"✗ {text.safe(entry.act)}", "failed")


def _result_cell(entry: Entry, _: int) -> Cell:
    return _result(entry), "" if entry.done else "failed"


def _result(entry: Entry) -> str:
    return text.safe(entry.result.removeprefix(f"job {written(entry.job)}: ")) or ("done" if entry.done else "-")


def _row(entry: Entry) -> dict[str, object]:
    site = {"database": entry.site.database, "server": entry.site.server}
    return {"at": entry.at.isoformat(), **site, **entry.parameters()}


def _whole(entry: Entry) -> str:
    return " ".join(map(str, _row(entry).values())).lower()


def _plain(value: object) -> object:
    """A time as elsewhere on the screen; anything else as it is."""
    try:
        return text.instant(datetime.fromisoformat(value)) if isinstance(value, str) else value
    except ValueError:
        return value


def _told(entry: Entry) -> str:
    told = {name: _plain(value) for name, value in entry.seen.items() if value not in (None, False)}
    seen = ", ".join(f"{text.safe(name).replace('_', ' ')} {text.safe(value)}" for name, value in told.items())
    done = "" if entry.done else ", refused"
    why, came = text.safe(entry.reason, 2000) or "-", text.safe(entry.result, 2000) or "-"
    return (
        f"{text.instant(entry.at)}  {text.safe(entry.actor)}  {text.safe(entry.act)}{done}  "
        f"job {text.safe(written(entry.job))}  at {text.safe(entry.site.server) or 'a server not recorded'}\n"
        f"why   {why}\nseen  {seen or '-'}\ncame  {came}"
    )
