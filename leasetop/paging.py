"""Keyset paging: where a row stands in an order, and the predicate for the rows after it. Text in, text out.

An order is an ORDER BY as a profile writes it. It is made total by the columns of the key, so that no row is met twice
or left out where many are alike. A window begins after a row's values and not after so many rows: rows that come and go
before it change nothing, and the index of the order finds it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands: in which arm of a statement (None: it has one order for all), and its values there."""

    arm: int | None
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """One expression of an ORDER BY."""

    sql: str
    down: bool = False
    nulls_first: bool = False

    @property
    def written(self) -> str:
        """As it stands in ORDER BY."""
        nulls = "" if self.nulls_first == self.down else f" NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        return f"{self.sql}{' DESC' if self.down else ''}{nulls}"


_TAIL = re.compile(r"(?P<sql>.*?)(?P<way>\s+(?:ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?", re.I | re.S)


def terms(order: str, key: Sequence[str]) -> tuple[Term, ...]:
    """An ORDER BY and the columns of the key -> the terms of a total order."""
    found = []
    for part in _parts(re.sub(r"--[^\n]*", "", order)):
        match = _TAIL.fullmatch(part.strip())
        assert match is not None, "the pattern takes any text"
        down = (match["way"] or "").strip().upper() == "DESC"
        nulls_first = down if match["nulls"] is None else match["nulls"].upper() == "FIRST"
        found.append(Term(match["sql"], down, nulls_first))
    known = {term.sql for term in found}
    return (*found, *(Term(sql) for sql in key if sql not in known))


def _parts(order: str) -> Iterator[str]:
    """Cut at the commas that are in no parentheses and no literal."""
    depth, begun = 0, 0
    for match in re.finditer(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[(),\[\]]", order):
        sign = match[0]
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            yield order[begun : match.start()]
            begun = match.end()
    if order[begun:].strip():
        yield order[begun:]


def place(of: Sequence[Term]) -> str:
    """The values of a row, as SQL: an array of texts."""
    return f"ARRAY[{', '.join(f'({term.sql})::text' for term in of)}]"


def after(of: Sequence[Term], values: Sequence[str | None]) -> list[str]:
    """Predicates for the rows after those values, each a range of the order, one after the other.

    The values are the parameters `:at0`, `:at1`, ...
    """
    first, value = of[0], values[0]
    equal, rest = _equal(first, 0, value), _after(of, values, 1)
    if value is None:
        ranges = [f"{equal} AND {rest}"]
        return [*ranges, f"{first.sql} IS NOT NULL"] if first.nulls_first else ranges
    sign = "<" if first.down else ">"
    # The plain bound is for the index; what is exact about it stands beside it.
    ranges = [f"{first.sql} {sign}= :at0 AND ({first.sql} {sign} :at0 OR {rest})"]
    return ranges if first.nulls_first else [*ranges, f"{first.sql} IS NULL"]


def _after(of: Sequence[Term], values: Sequence[str | None], n: int) -> str:
    if n == len(of):
        return "false"
    term, value = of[n], values[n]
    if value is None:
        beyond = f"{term.sql} IS NOT NULL" if term.nulls_first else "false"
    else:
        beyond = f"{term.sql} {'<' if term.down else '>'} :at{n}"
        beyond += "" if term.nulls_first else f" OR {term.sql} IS NULL"
    return f"({beyond} OR ({_equal(term, n, value)} AND {_after(of, values, n + 1)}))"


def _equal(term: Term, n: int, value: str | None) -> str:
    return f"{term.sql} IS NULL" if value is None else f"{term.sql} = :at{n}"


def parameters(values: Sequence[str | None]) -> dict[str, str | None]:
    """What `after` is to be given."""
    return {f"at{n}": value for n, value in enumerate(values) if value is not None}
