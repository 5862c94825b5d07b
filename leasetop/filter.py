"""The filter line: what an operator types -> which jobs. Text in, conditions and words out; nothing is executed here.

    pay-7                  any of id, owner, queue, kind, stage, error, idempotency key contains it
    owner:pay-7            that field contains it;  kind=charge  it is exactly that
    state:stuck            the shown state (or a reason: state:parked); several: state:pending,scheduled
    attempts>=3 age>10m    numbers and spans: attempts, max, priority; age, held, expired, left
    has:owner no:error     whether a field is there at all
    -owner:pay-7           not so
    "two words"            quotes keep spaces

Terms are joined by AND. Values are always bound. Conditions are over the canonical columns that reading.py selects, so
that they mean the same for every queue.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from leasetop.errors import LeasetopError
from leasetop.model import Reason, State


class FilterError(LeasetopError):
    """A filter that cannot be understood, in words for the line below it."""


_TEXTS: Mapping[str, str] = {
    "id": "job_id",
    "owner": "owner",
    "queue": "queue",
    "kind": "kind",
    "stage": "stage",
    "error": "error",
    "key": "idempotency_key",
    "status": "status",
}
_ANYWHERE = ("job_id", "owner", "queue", "kind", "stage", "error", "idempotency_key")
_NUMBERS = {"attempts": "attempts", "max": "max_attempts", "priority": "priority"}
# Spans are counted from the server's now(): what is asked is how long ago, or how far ahead, an instant is.
_SPANS = {
    "age": "now() - created_at",
    "held": "now() - claimed_at",
    "expired": "now() - lease_until",
    "left": "lease_until - now()",
}
_PRESENCE = {
    **{name: name for name in ("owner", "queue", "kind", "stage", "error")},
    **{"key": "idempotency_key", "lease": "lease_until", "attempts": "attempts"},
}
_FIELDS = frozenset({*_TEXTS, *_NUMBERS, *_SPANS, "state", "has", "no"})
_TERM = re.compile(r"(?P<no>-?)(?P<name>[a-z]+)(?P<sign>>=|<=|!=|[:=<>])(?P<value>.+)", re.DOTALL)
_SPAN = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s?)?")
_WORDS = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most", "=": "exactly", "!=": "other than"}


@dataclass(frozen=True, slots=True)
class Filter:
    """What the line says. An empty one lets everything through."""

    text: str = ""
    states: frozenset[State] = frozenset(State)
    reasons: frozenset[Reason] | None = None
    """Of stuck jobs; None: whatever the reason."""
    conditions: tuple[str, ...] = ()
    """Over the canonical columns, with `:fN` parameters."""
    values: Mapping[str, object] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    exact: Mapping[str, str] = field(default_factory=dict)
    """Canonical column -> parameter that it equals: what an index may find beyond the first jobs of a state."""

    def __bool__(self) -> bool:
        return bool(self.text.strip())

    @property
    def explained(self) -> str:
        """The filter in words."""
        return ", ".join(self.words) or "all jobs"


def parse(text: str) -> Filter:
    """The line -> a filter. Raises FilterError."""
    return _Parser(text).filter()


def exactly(name: str, value: str) -> str:
    """The line for the jobs whose field is exactly that."""
    return f"{name}={_quoted(value)}"


def _quoted(value: str) -> str:
    return value if re.fullmatch(r"[\w./:@-]+", value) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._conditions: list[str] = []
        self._values: dict[str, object] = {}
        self._words: list[str] = []
        self._states = set(State)
        self._reasons: set[Reason] | None = None
        self._exact: dict[str, str] = {}

    def filter(self) -> Filter:
        try:
            terms = shlex.split(self._text, posix=True)
        except ValueError:
            raise FilterError("a quote is not closed") from None
        for term in terms:
            self._term(term)
        return Filter(
            self._text,
            frozenset(self._states),
            None if self._reasons is None else frozenset(self._reasons),
            tuple(self._conditions),
            self._values,
            tuple(self._words),
            self._exact,
        )

    def _term(self, term: str) -> None:
        begun = re.fullmatch(r"-?([a-z]+)(?:>=|<=|!=|[:=<>])", term)
        if begun and begun[1] in _FIELDS:
            raise FilterError(f"{term} what?")
        match = _TERM.fullmatch(term)
        if match is None or (match["name"] not in _FIELDS and match["sign"] == ":"):
            self._anywhere(term, "" if match is None else match["name"])
            return
        name, sign, value, no = match["name"], match["sign"], match["value"], bool(match["no"])
        if name == "state":
            self._state(sign, value, no)
        elif name in ("has", "no"):
            self._presence(name, sign, value, no)
        elif name in _TEXTS:
            self._in_text(name, sign, value, no)
        elif name in _NUMBERS:
            self._number(name, sign, value, no)
        elif name in _SPANS:
            self._span(name, sign, value, no)
        else:
            raise FilterError(f"'{name}' is no field; fields are {', '.join(sorted(_FIELDS))}")

    def _anywhere(self, term: str, unknown: str = "") -> None:
        no = term.startswith("-") and len(term) > 1
        word = term[1:] if no else term
        place = self._bind(word)
        found = " OR ".join(f"strpos(lower({column}), lower({place}::text)) > 0" for column in _ANYWHERE)
        # It may be a text with a colon; or a slip.
        self._add(f"({found})", no, f"'{word}' anywhere" + (f" ({unknown} is no field)" if unknown else ""))

    def _state(self, sign: str, value: str, no: bool) -> None:
        if sign not in (":", "="):
            raise FilterError("state has no order: state:stuck")
        wanted = [one.replace(" ", "-") for one in value.split(",")]
        states = {state for state in State if state.value in wanted}
        reasons = {reason for reason in Reason if reason.value.replace(" ", "-") in wanted}
        if len(states) + len(reasons) < len(wanted) or (states and reasons):
            every = ", ".join([*State, *(reason.replace(" ", "-") for reason in Reason)])
            raise FilterError(f"'{value}' is no state, nor several of a kind; states are {every}")
        if reasons:
            reasons = set(Reason) - reasons if no else reasons
            self._reasons = reasons if self._reasons is None else self._reasons & reasons
            states = set(State) if no else {State.STUCK}
        elif no:
            states = set(State) - states
        self._states &= states
        self._words.append(f"{'not ' if no else ''}{' or '.join(value.split(','))}")

    def _presence(self, name: str, sign: str, value: str, no: bool) -> None:
        if sign != ":" or value not in _PRESENCE:
            raise FilterError(f"{name}: which field? {', '.join(sorted(_PRESENCE))}")
        there = (name == "has") != no
        self._conditions.append(f"{_PRESENCE[value]} IS {'NOT ' if there else ''}NULL")
        self._words.append(f"{'with' if there else 'without'} {value}")

    def _in_text(self, name: str, sign: str, value: str, no: bool) -> None:
        column, place = _TEXTS[name], self._bind(value)
        if sign == ":":
            self._add(f"strpos(lower({column}), lower({place}::text)) > 0", no, f"{name} contains '{value}'")
        elif sign in ("=", "!="):
            opposite = no != (sign == "!=")
            if not opposite:
                self._exact.setdefault(column, place.removeprefix(":"))
            self._add(f"{column} = {place}::text", opposite, f"{name} is '{value}'")
        else:
            raise FilterError(f"{name} is a text: {name}:part or {name}=whole")

    def _number(self, name: str, sign: str, value: str, no: bool) -> None:
        if value in _NUMBERS:
            sign = "=" if sign == ":" else sign
            self._add(f"{_NUMBERS[name]} {_sql(sign)} {_NUMBERS[value]}", no, f"{name} {_WORDS[sign]} {value}")
            return
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            raise FilterError(f"{name}: '{value}' is no whole number")
        sign = "=" if sign == ":" else sign
        self._add(
            f"{_NUMBERS[name]} {_sql(sign)} {self._bind(int(value))}::bigint", no, f"{name} {_WORDS[sign]} {value}"
        )

    def _span(self, name: str, sign: str, value: str, no: bool) -> None:
        if sign not in ("<", ">", "<=", ">="):
            raise FilterError(f"{name} is a span: {name}>10m")
        match = _SPAN.fullmatch(value)
        if match is None or not any(match.groups()):
            raise FilterError(f"{name}: '{value}' is no span such as 45s, 10m, 2h30m, 1d")
        try:
            days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
            span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            raise FilterError(f"{name}: '{value}' is too long") from None
        unit = " seconds" if value.isdigit() else ""
        self._add(f"{_SPANS[name]} {sign} {self._bind(span)}::interval", no, f"{name} {_WORDS[sign]} {value}{unit}")

    def _bind(self, value: object) -> str:
        name = f"f{len(self._values)}"
        self._values[name] = value
        return f":{name}"

    def _add(self, condition: str, no: bool, words: str) -> None:
        # What is not known does not match, and its opposite does not either way hide it: NOT TRUE.
        self._conditions.append(f"({condition}) IS NOT TRUE" if no else condition)
        self._words.append(f"not: {words}" if no else words)


def _sql(sign: str) -> str:
    return "<>" if sign == "!=" else sign
