"""The race, shown: double executions counted live, reading-then-writing beside one conditional UPDATE."""

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Digits, ProgressBar, Static

from leasetop import text
from leasetop.database import Database
from leasetop.demo import race
from leasetop.demo.fleet import Fleet
from leasetop.errors import LeasetopError

_TICK_S = 0.5
_EACH = 2
_TITLES = {race.Lane.NAIVE: "read, then write", race.Lane.CONDITIONAL: "one conditional UPDATE"}
_HOW = {
    race.Lane.NAIVE: "SELECT id ... WHERE status = 'Pending' LIMIT 1;\nUPDATE ... SET owner = me WHERE id = 17;",
    race.Lane.CONDITIONAL: "UPDATE ... SET owner = me\n WHERE id = 17 AND status = 'Pending';",
}


class Track(Vertical):
    """One lane: how it takes jobs, how far it is, and how many were done more than once."""

    def __init__(self, lane: race.Lane) -> None:
        super().__init__(classes="track")
        self.border_title = Content(_TITLES[lane])
        self._lane = lane

    def compose(self) -> ComposeResult:
        yield Static(_HOW[self._lane], markup=False, classes="how")
        yield ProgressBar(show_eta=False)
        yield Static("payments made more than once", markup=False)
        yield Digits("0")
        yield Static(classes="latest", markup=False)

    def show(self, standing: race.Standing) -> None:
        self.query_one(ProgressBar).update(total=standing.jobs, progress=standing.done)
        self.query_one(Digits).update(str(standing.doubled))
        self.set_class(standing.doubled > 0, "-doubled")
        lines = [f"{text.count(standing.executions)} payments made for {text.plural(standing.done, 'job')}"]
        lines += [f"job {text.safe(said)}" for said in standing.latest]
        self.query_one(".latest", Static).update(Content("\n".join(lines)))


class RaceScreen(ModalScreen[None]):
    """Starts the race when it opens; `r` runs it again."""

    BINDINGS = [
        Binding("escape,q", "close", "Close"),
        Binding("r", "again", "Again"),
    ]

    def __init__(self, database: Database, fleet: Fleet) -> None:
        super().__init__()
        self._database, self._fleet = database, fleet

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Two workers a lane, the same 2 000 jobs. All four are real processes.", markup=False)
            with Horizontal(id="tracks"):
                for lane in race.Lane:
                    yield Track(lane)
            yield Static("r runs it again, esc closes", id="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(".dialog").border_title = Content("The race")
        self.action_again()
        self.set_interval(_TICK_S, self._look)

    def action_close(self) -> None:
        self.dismiss(None)

    @work(exclusive=True, group="race")
    async def action_again(self) -> None:
        try:
            await self._fleet.stop_racers()
            await race.begin(self._database)
            await self._fleet.start_racers(_EACH)
        except LeasetopError as error:
            self.query_one("#hint", Static).update(Content(str(error)))

    @work(exclusive=True, group="standings")
    async def _look(self) -> None:
        try:
            standings = await race.standings(self._database)
        except LeasetopError as error:
            self.query_one("#hint", Static).update(Content(str(error)))
            return
        for track, standing in zip(self.query(Track), standings, strict=False):
            track.show(standing)
