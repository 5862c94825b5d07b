"""Whatever stands in a table, a row of the screen is one line of safe text of the right width."""

import unicodedata
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from leasetop import text

HOSTILE = [
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1b[2J",
    "\u009b31m",
    "a\nb\r\nc\td",
    "\u202eoverride\u202c",
    "zero\u200bwidth",
    "\x00nul",
    "wide 支払い 🧾👩‍👩‍👧",
    "[@click=app.quit]x[/]",
    "lone \ud800 surrogate",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_no_control_or_invisible_character_reaches_the_terminal(value: str) -> None:
    shown = text.safe(value)
    assert not [character for character in shown if unicodedata.category(character) in ("Cc", "Cf", "Cs")]


@given(st.text(), st.integers(0, 40))
def test_every_text_fits_its_width_exactly(value: str, width: int) -> None:
    assert cell_len(text.fit(text.safe(value), width)) == width


@given(st.text(), st.integers(1, 40))
def test_text_set_to_the_right_fits_its_width_too(value: str, width: int) -> None:
    assert cell_len(text.right(text.safe(value), width)) == width


def test_a_million_characters_are_cut_before_they_are_looked_at() -> None:
    assert len(text.safe("x" * 1_000_000)) == text.LONGEST + 1


def test_a_cut_text_of_many_lines_says_how_much_is_missing() -> None:
    assert text.safe_lines("one\ntwo" + "x" * 30, longest=7) == "one\ntwo\n… 30 more characters"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (41.9, "41s"),
        (133, "2m13s"),
        (-133, "2m13s"),
        (11_100, "3h05m"),
        (1_051_200, "12d04h"),
        (1e11, "∞"),
    ],
)
def test_a_span_is_said_in_its_two_largest_units(seconds: float, said: str) -> None:
    assert text.duration(timedelta(seconds=seconds)) == said


def test_a_capped_count_says_that_it_is_one() -> None:
    assert (text.count(1204), text.count(10_000, capped=True)) == ("1 204", "10 000+")


@given(st.floats(-1, 2), st.integers(0, 30))
def test_a_bar_is_always_as_wide_as_asked(part: float, width: int) -> None:
    assert cell_len(text.bar(part, width)) == width
