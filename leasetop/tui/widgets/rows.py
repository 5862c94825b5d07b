"""A table whose cursor stays on a key, not on a row number, over every refresh.

`Rows` shows values of any type through `Column`s. New data is assigned with `show`; the cursor, and the line of the
screen that it is on, stay with the same key. A row under the cursor that is gone from the new data stays in place as a
ghost until the cursor is moved, so that a key pressed a moment later can never mean another job. Until the operator
has moved the cursor at all it follows the first row.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from leasetop import text

T = TypeVar("T")

Cell = tuple[str, str]
"""What a cell says, and the name of its look (a component class without `rows--`); an empty name: the row's look."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: how wide at least, what share of spare room it takes, and how soon it goes when room is short."""

    title: str
    width: int
    cell: Callable[[T, int], Cell]
    """The cell of a value in so many terminal cells; the text must have come through leasetop.text."""
    share: int = 0
    rank: int = 0
    """The column with the highest rank goes first; 0 never goes."""
    right: bool = False
    ticks: bool = False
    """Whether it changes with time alone."""
    tells_ghost: bool = False
    """Whether it says that a row is gone; else it says what it said last, or nothing where that changes with time."""
    sort: str | None = None
    """What it is called where rows are sorted by it; None: they cannot be."""


@dataclass(frozen=True, slots=True)
class _Row(Generic[T]):
    key: Hashable
    value: T
    ghost: bool = False


class Rows(ScrollView, Generic[T], can_focus=True):
    """The table. `Moved` says where the cursor is, `Chosen` that a double click took it."""

    LOOKS = (
        "stuck",
        "processing",
        "expiring",
        "pending",
        "scheduled",
        "failed",
        "completed",
        "cancelled",
        "other",
    )
    COMPONENT_CLASSES = {
        "rows--header",
        "rows--cursor",
        "rows--ghost",
        "rows--dim",
        *(f"rows--{look}" for look in LOOKS),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "move_to(0)", "First", show=False),
        Binding("end,G", "move_to(-1)", "Last", show=False),
    ]

    class Moved(Message):
        """The cursor is on another key."""

        def __init__(self, rows: "Rows") -> None:  # type: ignore[type-arg]
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> "Rows":  # type: ignore[type-arg]
            return self.rows

    class Chosen(Moved):
        """A double click on the row under the cursor."""

    class Sorted(Message):
        """A click on the title of a column by which rows can be sorted."""

        def __init__(self, rows: "Rows", sort: str) -> None:  # type: ignore[type-arg]
            super().__init__()
            self.rows, self.sort = rows, sort

        @property
        def control(self) -> "Rows":  # type: ignore[type-arg]
            return self.rows

    class Marked(Moved):
        """Other rows are marked."""

    class Ended(Moved):
        """The cursor was to go beyond the last row."""

    class Begun(Moved):
        """The cursor was to go before the first row."""

    def __init__(self, columns: Sequence[Column[T]], *, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self._columns = tuple(columns)
        self.empty = empty
        """What is said where there is no row."""
        self._rows: list[_Row[T]] = []
        self._cursor: Hashable | None = None
        self._anchored = False
        self._layout: list[tuple[Column[T], int]] = []
        self._wish: Hashable | None = None
        self.ghost_says = "(left)"
        """What is said of a row that is gone from the data."""
        self._marks: dict[Hashable, T] = {}
        self._ticked: dict[int, tuple[object, ...]] = {}
        self.sorted_by: tuple[str, bool] | None = None
        """A column's `sort`, and whether downwards; for the arrow in the header."""

    @property
    def columns(self) -> tuple[Column[T], ...]:
        """All columns, also those for which there is no room."""
        return self._columns

    def has_room_for(self, sort: str) -> bool:
        """Whether the column of that sort is shown."""
        return any(column.sort == sort for column, _ in self._layout)

    @property
    def marked(self) -> list[T]:
        """What is marked, as it was last seen; what left the view since stays marked."""
        return list(self._marks.values())

    @property
    def selected(self) -> T | None:
        """What the cursor is on; a ghost counts, as it was last seen."""
        row = self._find(self._cursor)
        return None if row is None else self._rows[row].value

    @property
    def on_ghost(self) -> bool:
        """Whether the row under the cursor is gone from the data."""
        row = self._find(self._cursor)
        return row is not None and self._rows[row].ghost

    @property
    def values(self) -> list[T]:
        """What is shown, without a ghost."""
        return [row.value for row in self._rows if not row.ghost]

    def show(self, values: Iterable[tuple[Hashable, T]], empty: str | None = None) -> None:
        """New data, in order; keys are unique."""
        was = (self._rows, self._cursor, self.empty)
        before, top = self._find(self._cursor), round(self.scroll_y)
        screen_line = None if before is None else before - top
        watched = self._rows[top].key if top < len(self._rows) else None
        held = self._rows[before] if before is not None else None
        self._rows = [_Row(key, value) for key, value in values]
        if self._marks:
            self._marks.update((row.key, row.value) for row in self._rows if row.key in self._marks)
        if empty is not None:
            self.empty = empty
        if not self._anchored and self._find(self._wish) is not None:
            self._cursor, self._anchored = self._wish, True
            self._resize()
            self._scroll((self._find(self._cursor) or 0) - max(1, self.size.height - 1) // 2)
        elif not self._anchored:
            self._cursor = self._rows[0].key if self._rows else None
        elif held is not None and before is not None and self._find(held.key) is None:
            self._rows.insert(min(before, len(self._rows)), _Row(held.key, held.value, ghost=True))
        self._resize()
        after = self._find(self._cursor)
        visible = screen_line is not None and 0 <= screen_line < max(1, self.size.height - 1)
        if self._anchored and visible and after is not None and screen_line is not None:
            self._scroll(after - screen_line)
        elif self._anchored and watched is not None:
            kept = self._find(watched)
            self._scroll(top if kept is None else kept)
        self._refresh_changed(top, *was)
        if held is None or held.key != self._cursor:
            self.post_message(self.Moved(self))

    def _refresh_changed(
        self,
        top: int,
        rows: "list[_Row[T]]",
        cursor: Hashable | None,
        empty: str,
    ) -> None:
        """Draws again only the lines that are different now: over ssh every cell that is not sent counts."""
        moved = (round(self.scroll_y), self._cursor, self.empty) != (top, cursor, empty)
        if moved or not rows or not self._rows:
            self.refresh()
            return
        for line in range(max(0, self.size.height - 1)):
            if rows[top + line : top + line + 1] != self._rows[top + line : top + line + 1]:
                self.refresh(Region(0, line + 1, self.size.width, 1))

    def sort_shown(self, sorted_by: tuple[str, bool] | None) -> None:
        """Which column the header points at."""
        if sorted_by != self.sorted_by:
            self.sorted_by = sorted_by
            self.refresh()

    def take_columns(self, columns: Sequence[Column[T]]) -> None:
        """Other columns from now on: another kind of rows comes."""
        self._columns = tuple(columns)
        self.forget()

    def forget(self, keep_cursor: bool = False) -> None:
        """Another set of rows comes: the cursor starts at its top again, or stays on its key if that is among them."""
        if not keep_cursor:
            self._wish = None
        elif self._anchored:
            self._wish = self._cursor
        self._anchored, self._cursor, self._rows = False, None, []
        self.unmark()
        self._resize()
        self._scroll(0)
        self.refresh()

    def hold_cursor(self) -> None:
        """The cursor stays on its row from now on, as if it had been moved there."""
        self._anchored = self._cursor is not None

    def put_cursor(self, key: Hashable) -> None:
        """Moves the cursor to a key that is shown; else does nothing."""
        row = self._find(key)
        if row is not None:
            self._go(row)

    def unmark(self, keys: Collection[Hashable] | None = None) -> None:
        """No marks any more, or not those."""
        if self._marks:
            self._marks = {} if keys is None else {key: one for key, one in self._marks.items() if key not in keys}
            self.refresh()
            self.post_message(self.Marked(self))

    def mark(self) -> None:
        """Marks the row under the cursor, or takes its mark, and goes on to the next."""
        row = self._find(self._cursor)
        if row is None:
            return
        shown = self._rows[row]
        if shown.key in self._marks:
            del self._marks[shown.key]
        else:
            self._marks[shown.key] = shown.value
        self.post_message(self.Marked(self))
        self._go(row + 1)
        self.refresh()

    def mark_all(self, values: Iterable[tuple[Hashable, T]] | None = None) -> None:
        """Marks all rows that are shown, or these, and no others."""
        shown = ((row.key, row.value) for row in self._rows if not row.ghost)
        self._marks = dict(shown if values is None else values)
        self.post_message(self.Marked(self))
        self.refresh()

    def action_move(self, by: int) -> None:
        row = self._find(self._cursor)
        if row is not None and by > 0 and row == len(self._rows) - 1:
            self.post_message(self.Ended(self))
        elif row == 0 and by < 0:
            self.post_message(self.Begun(self))
        self._go(0 if row is None else row + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 2))

    def action_move_to(self, row: int) -> None:
        self.post_message(self.Ended(self) if row < 0 else self.Begun(self))
        self._go(row if row >= 0 else len(self._rows) - 1)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            self._click_title(event.x)
        row = event.y - 1 + round(self.scroll_y)
        if event.y >= 1 and row < len(self._rows):
            self._go(row)
            if event.chain == 2:
                self.post_message(self.Chosen(self))

    def _click_title(self, x: int) -> None:
        left = 1
        for column, width in self._layout:
            if left <= x < left + width and column.sort is not None:
                self.post_message(self.Sorted(self, column.sort))
            left += width + 1

    def _title(self, column: Column[T]) -> str:
        if self.sorted_by is None or column.sort != self.sorted_by[0]:
            return column.title
        return f"{'▼' if self.sorted_by[1] else '▲'}{column.title}"

    def on_resize(self) -> None:
        self._resize()

    def render_line(self, y: int) -> Strip:
        base = self.rich_style
        if y == 0:
            return self._line([(self._title(column), "") for column, _ in self._layout], base + self._look("header"))
        row = y - 1 + round(self.scroll_y)
        if row >= len(self._rows):
            message = f"  {self.empty}" if not self._rows and y == 2 else ""
            return Strip([Segment(text.fit(message, self.size.width), base + self._look("dim"))])
        shown = self._rows[row]
        style = base
        if shown.ghost:
            style += self._look("ghost")
        if shown.key == self._cursor and self._cursor is not None:
            style += self._look("cursor")
        cells = [column.cell(shown.value, width) for column, width in self._layout]
        here = shown.key == self._cursor
        if shown.ghost:
            columns = [column for column, _ in self._layout]
            gone = [
                self.ghost_says if column.tells_ghost else "-" if column.ticks else said
                for column, (said, _) in zip(columns, cells, strict=True)
            ]
            cells = [(said, "") for said in gone]
        elif here:
            # On the cursor's own colour no other can be read for sure.
            cells = [(said, "") for said, _ in cells]
        marker = ("◆" if here else "●") if shown.key in self._marks else "›" if here else " "
        return self._line(cells, style, marker=marker)

    def _line(self, cells: Sequence[Cell], style: Style, marker: str = " ") -> Strip:
        segments = [Segment(marker, style)]
        for (column, width), (said, look) in zip(self._layout, cells, strict=True):
            fitted = text.right(said, width) if column.right else text.fit(said, width)
            segments.append(Segment(fitted, self._over(style, look) if look else style))
            segments.append(Segment(" ", style))
        return Strip(segments).adjust_cell_length(self.size.width, style)

    def _over(self, style: Style, look: str) -> Style:
        # A cell's look gives its letters only: the background of the cursor stays under them.
        own = self._look(look)
        return style + Style(color=own.color, bold=own.bold, dim=own.dim, italic=own.italic)

    def _look(self, name: str) -> Style:
        return self.get_component_rich_style(f"rows--{name}", partial=True) if name else Style.null()

    def _find(self, key: Hashable | None) -> int | None:
        if key is None:
            return None
        return next((n for n, row in enumerate(self._rows) if row.key == key), None)

    def _go(self, row: int) -> None:
        if not self._rows:
            return
        target = self._rows[max(0, min(row, len(self._rows) - 1))]
        moved = target.key != self._cursor
        self._cursor, self._anchored, self._wish = target.key, True, None
        if moved and any(row.ghost for row in self._rows):
            self._rows = [row for row in self._rows if not row.ghost or row.key == target.key]
            self._resize()
        at = self._find(self._cursor) or 0
        top, room = round(self.scroll_y), max(1, self.size.height - 1)
        if at < top:
            self._scroll(at)
        elif at >= top + room:
            self._scroll(at - room + 1)
        self.refresh()
        if moved:
            self.post_message(self.Moved(self))

    def _scroll(self, y: int) -> None:
        self.scroll_to(y=max(0, y), animate=False, immediate=True)

    def _resize(self) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        self._layout = _layout(self._columns, width - 1)
        self.virtual_size = Size(width, len(self._rows) + 1)

    def refresh_times(self) -> None:
        """Draws again the lines on which time alone has changed something that is shown."""
        ticking, top = [(column, width) for column, width in self._layout if column.ticks], round(self.scroll_y)
        for line in range(max(0, self.size.height - 1)):
            row = self._rows[top + line] if top + line < len(self._rows) else None
            shown = () if row is None else (row.key, *(column.cell(row.value, width) for column, width in ticking))
            if shown != self._ticked.get(line):
                self._ticked[line] = shown
                self.refresh(Region(0, line + 1, self.size.width, 1))


def _layout(columns: Sequence[Column[T]], room: int) -> list[tuple[Column[T], int]]:
    """The columns that fit, with their widths; one cell stands between two columns."""
    kept = list(columns)
    while sum(column.width + 1 for column in kept) > room and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    spare = max(0, room - sum(column.width + 1 for column in kept))
    shares = sum(column.share for column in kept) or 1
    return [(column, column.width + spare * column.share // shares) for column in kept]
