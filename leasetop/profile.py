"""Profiles: what the tables of a queue mean, as a TOML file.

A profile says where jobs are (`source`, `key`), what the canonical fields are in SQL (`columns`), which rows are in
which state (`states`, used in WHERE as written), and what may be done (`actions`). All reads and acts are built from
it (reading.py, queue.py), the home table's too: there is one path.

Two kinds of things stand in its SQL. `${name}` is an identifier, quoted when the profile is read: `names` gives the
defaults, detection and discovery (finding.py) what is true in a database; `${fence}` is the fence expression. `:name`
is a value, always bound: the `params`, whose defaults an operator sets as the workers' own configuration has them, and
what an act is given (`:key_NAME`, `:fence`, `:actor`, `:reason`, ...).
"""

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from leasetop import statements, toml
from leasetop.errors import LeasetopError
from leasetop.model import Evidence, Job, Key, Reason, State

_SHIPPED = Path(__file__).parent / "profiles"

# Canonical field -> the type that its SQL expression is read as. `status` and `fence` every profile must have.
COLUMNS: Mapping[str, str] = {
    "status": "text",
    "fence": "text",
    "owner": "text",
    "lease_until": "timestamptz",
    "lease_ttl": "interval",
    "claimed_at": "timestamptz",
    "heartbeats": "bigint",
    "stage": "text",
    "queue": "text",
    "kind": "text",
    "priority": "bigint",
    "attempts": "bigint",
    "max_attempts": "bigint",
    "created_at": "timestamptz",
    "run_after": "timestamptz",
    "finished_at": "timestamptz",
    "error": "text",
    "idempotency_key": "text",
    "amount": "text",
}

LABELS = ("verified-live", "verified-schema", "read-only", "own")
"""How far a profile is proven: by the real engine in our tests; against its schema only; and it may do nothing."""

_TOP = {
    *("id", "title", "label", "tested", "evidence", "completion_fenced", "names", "params", "detect", "discover"),
    *("source", "key", "columns", "indexed", "payload", "states", "window", "since", "order", "archive"),
    *("history", "journal", "late", "throughput", "trends", "watchers", "actions", "notes"),
}
_ARCHIVE = {"from", "key", "columns", "states", "window", "since", "order"}
_ACTION = {"statement", "sql", "lock", "effect", "delegate", "confirm", "needs"}
_PARAMETER_TYPES = ("interval", "integer", "text")
_IDENTIFIER = re.compile(r"\$\{(\w+)\}")


class ProfileError(LeasetopError):
    """A profile that cannot be used: names the file, the key and the reason."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a job's key: its SQL, and the type that an act casts it back to."""

    name: str
    sql: str
    type: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value of the profile's SQL that the operator may set: `type` is a SQL type, `default` its text."""

    type: str
    default: str
    note: str


@dataclass(frozen=True, slots=True)
class Action:
    """A guarded write, or the command of the queue's own tool where only that can do it right.

    `sql` takes `:key_NAME` and `:fence`, and returns a row for each job that it changed.
    """

    sql: str | None
    effect: str
    delegate: str | None = None
    """A command with `{NAME}` for each column of the key."""
    confirm: str | None = None
    """What the operator has to be sure of, since nothing in the database proves it: needs the typed id."""
    needs: str | None = None
    """Who may do it: without that the statement may change nothing and say nothing."""
    lock: tuple[str, ...] = ()
    """Statements that lock what the act rests on, where that is more than the row which it writes: one after the other
    in its transaction, before it. Each sees what was committed until its own beginning, so that a heartbeat made while
    the row's lock was waited for counts. What they return as id and owner is `:locked` and `:owners` from there on."""

    @property
    def statement(self) -> str:
        """The SQL of an act that has some. Raises ValueError where only the queue's own tool can do it."""
        if self.sql is None:
            raise ValueError("this act has no statement")
        return self.sql

    def command(self, key: Mapping[str, str]) -> str | None:
        """The command for one job, safe to paste into a shell."""
        if self.delegate is None:
            return None
        return self.delegate.format_map({name: shlex.quote(value) for name, value in key.items()})


@dataclass(frozen=True, slots=True)
class Source:
    """Rows that are jobs: the queue's own table, or an archive that finished jobs move to."""

    relation: str
    """What stands after FROM."""
    key: tuple[KeyColumn, ...]
    columns: Mapping[str, str]
    states: Mapping[tuple[State, Reason | None], str]
    """Predicate for each shown state; stuck has one for each reason."""
    window: Mapping[State, str]
    """What lists and counts look at only, in states that no index serves; a job that is asked for by its key is found
    beyond it, too."""
    since: Mapping[State, str]
    order: Mapping[State, str]


@dataclass(frozen=True, slots=True)
class Detection:
    """How the queue is known: each table with some of its columns, and what must not be there."""

    tables: Mapping[str, tuple[str, ...]]
    without: frozenset[str]
    """Tables, or `table.column`."""


@dataclass(frozen=True, slots=True)
class Looks:
    """The statements of the trends: the first says where the look begins (`first`), the others are given that."""

    minutes: str
    noisy: str | None
    poison: str | None


@dataclass(frozen=True, slots=True)
class Profile:
    """A queue, described. SQL is text with `:name` parameters; see statements.bind."""

    id: str
    title: str
    label: str
    tested: tuple[str, ...]
    evidence: Evidence
    completion_fenced: bool
    names: Mapping[str, str]
    """Identifiers as they are in this database, not quoted."""
    params: Mapping[str, Parameter]
    detect: Detection | None
    discover: str | None
    """Returns a row for each queue: its columns are further names and values, and `title` what to call it."""
    live: Source
    archives: tuple[Source, ...]
    payload: str | None
    indexed: frozenset[str]
    """Canonical columns that an index serves, where they are asked for exactly."""
    history: str | None
    journal: str | None
    """What operators did, where the queue's own history says so."""
    late: str | None
    """Completions that were refused in the last 24 hours."""
    throughput: str | None
    trends: Looks | None
    watchers: str | None
    actions: Mapping[str, Action]
    notes: tuple[str, ...]
    """What this table lacks, in words for the operator."""
    origin: str = field(compare=False)
    document: Mapping[str, Any] = field(repr=False)
    values: Mapping[str, str] = field(default_factory=dict)
    """What is bound to the profile's own `:name`s."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """All places where jobs are; the live one first."""
        return self.live, *self.archives

    @property
    def is_home(self) -> bool:
        """Whether this is leasetop's own table, the only one that its workers can work on."""
        return self.id == "payment_jobs"

    def keeps(self, state: State) -> bool:
        """Whether this queue can tell jobs in that state at all."""
        return any(known is state for source in self.sources for known, _ in source.states)

    def has(self, column: str) -> bool:
        """Whether a canonical field is known for live jobs."""
        return column in self.live.columns

    def key_of(self, key: Key) -> dict[str, str]:
        """A job's key by the names of its columns."""
        return {column.name: part for column, part in zip(self.live.key, key, strict=True)}

    def way_back(self, state: State) -> Action | None:
        """The act that returns a job in that state to waiting: `retry` for failed ones where it differs."""
        if state is State.FAILED and "retry" in self.actions:
            return self.actions["retry"]
        return self.actions.get("requeue")

    def unproven(self, act: str, job: Job) -> str | None:
        """What the operator has to be sure of before that act, since nothing in the database proves it; None: it does.

        An act may say so itself (`confirm`); age alone proves nothing; and in a table of somebody's own nothing is
        known about how it comes that a lease, or an owner, is missing.
        """
        action = self.way_back(job.state) if act == "requeue" else self.actions.get(act)
        if action is not None and action.confirm:
            return action.confirm
        if job.state is not State.STUCK or job.reason is Reason.PARKED or act == "release":
            return None
        if self.evidence is Evidence.AGE:
            return "that its worker is dead, and not only slow: nothing but its age says so"
        if job.reason is Reason.AGE and self.label == "own":
            return "that its worker is dead: its row tells of somebody who was there after its lease's end"
        if self.label == "own" and job.reason in (Reason.NO_LEASE, Reason.GONE):
            return f"that its worker is dead: '{job.reason}' may have other causes"
        return None

    def given(self, params: Mapping[str, str]) -> "Profile":
        """The same with parameters set. Raises ProfileError for one that it has not."""
        for name in params.keys() - self.params.keys():
            has = ", ".join(sorted(self.params)) or "none"
            raise ProfileError(f"{self.title} has no parameter '{name}'; it has {has}")
        return replace(self, values={**self.values, **params})


@cache
def shipped() -> tuple[Profile, ...]:
    """The profiles that come with leasetop; the home table first."""
    files = sorted(_SHIPPED.glob("*.toml"), key=lambda file: (file.stem != "payment_jobs", file.stem))
    return tuple(load(file) for file in files)


def load(file: Path) -> Profile:
    """A profile from a file. Raises ProfileError with file, key and reason."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{file}: is no TOML: {error}") from None
    return read(raw, str(file))


def read(raw: Mapping[str, Any], origin: str, names: Mapping[str, str] | None = None) -> Profile:
    """A profile from its document; `origin` is named in complaints. Raises ProfileError."""
    return _Reader(origin, raw, names).profile()


def with_names(profile: Profile, names: Mapping[str, str], title: str | None = None) -> Profile:
    """The same profile with the identifiers and values of one queue in one database. Raises ProfileError."""
    named = read(profile.document, profile.origin, {**profile.names, **names})
    return replace(named, title=title or profile.title, values={**profile.values, **names})


def written(raw: Mapping[str, Any]) -> str:
    """The document as TOML, for a person to read and change."""
    plain = [f"{name} = {_toml(value)}" for name, value in raw.items() if not isinstance(value, Mapping)]
    return "\n".join(plain) + "\n" + "".join(_section(_toml_key(name), value) for name, value in raw.items())


def _section(path: str, value: object) -> str:
    if not isinstance(value, Mapping):
        return ""
    plain = [f"{_toml_key(name)} = {_toml(one)}" for name, one in value.items() if not isinstance(one, Mapping)]
    head = f"\n[{path}]\n" + "\n".join(plain) + "\n" if plain else ""
    return head + "".join(_section(f"{path}.{_toml_key(name)}", one) for name, one in value.items())


def _toml_key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else toml.value(name)


def _toml(value: object) -> str:
    # Set out in lines where it can be: TOML takes no control characters as they are, and no terminal should.
    if isinstance(value, str) and "\n" in value and "'''" not in value and value.replace("\n", "").isprintable():
        return f"'''\n{value}'''"
    return toml.value(value)


class _Reader:
    """Takes a parsed TOML document apart; every complaint names the file and the key."""

    def __init__(self, origin: str, raw: Mapping[str, Any], names: Mapping[str, str] | None) -> None:
        self._origin = origin
        self._raw = raw
        self._names = self._strings("names") | dict(names or {})

    def profile(self) -> Profile:
        for name in self._raw.keys() - _TOP:
            raise self._wrong(name, f"is not known; known are {', '.join(sorted(_TOP))}")
        evidence = self._text("evidence")
        if evidence not in set(Evidence):
            raise self._wrong("evidence", f"is '{evidence}'; it is one of {', '.join(Evidence)}")
        fenced = self._find("completion_fenced")
        if not isinstance(fenced, bool):
            raise self._wrong("completion_fenced", "must be true or false")
        label = self._optional("label") or "own"
        if label not in LABELS:
            raise self._wrong("label", f"is '{label}'; it is one of {', '.join(LABELS)}")
        live = self._source("", self._text("source.from"))
        for name in ("status", "fence"):
            self._text(f"columns.{name}")
        params = self._params()
        return Profile(
            id=self._text("id"),
            title=self._text("title"),
            label=label,
            tested=self._texts("tested"),
            evidence=Evidence(evidence),
            completion_fenced=fenced,
            names=self._names,
            params=params,
            detect=self._detection(),
            discover=self._optional("discover.sql"),
            live=live,
            archives=tuple(self._archives(live)),
            payload=self._optional("payload.sql"),
            indexed=frozenset(self._texts("indexed")),
            history=self._optional("history.sql"),
            journal=self._optional("journal.sql"),
            late=self._optional("late.sql"),
            throughput=self._optional("throughput.sql"),
            trends=self._looks(),
            watchers=self._optional("watchers.sql"),
            actions=self._actions(live.columns["fence"]),
            notes=self._texts("notes"),
            origin=self._origin,
            document=self._raw,
            values={name: param.default for name, param in params.items()},
        )

    def _source(self, at: str, relation: str) -> Source:
        columns = self._table(f"{at}columns")
        for name in columns.keys() - COLUMNS.keys():
            raise self._wrong(f"{at}columns.{name}", f"is not known; known are {', '.join(sorted(COLUMNS))}")
        return Source(
            relation=relation,
            key=self._key(f"{at}key"),
            columns={name: self._text(f"{at}columns.{name}") for name in COLUMNS if name in columns},
            states=self._states(f"{at}states"),
            window=self._by_state(f"{at}window"),
            since=self._by_state(f"{at}since"),
            order=self._by_state(f"{at}order", extra="default"),
        )

    def _archives(self, live: Source) -> Iterator[Source]:
        listed = self._find("archive") or []
        if not isinstance(listed, list):
            raise self._wrong("archive", "is a list of tables: write [[archive]]")
        for n, one in enumerate(listed):
            for name in one.keys() - _ARCHIVE:
                raise self._wrong(f"archive.{n}.{name}", f"is not known; known are {', '.join(sorted(_ARCHIVE))}")
            made = self._source(f"archive.{n}.", self._text(f"archive.{n}.from"))
            if [(column.name, column.type) for column in made.key] != [(key.name, key.type) for key in live.key]:
                raise self._wrong(f"archive.{n}.key", "has other columns or types than the key of the live jobs")
            yield made

    def _key(self, at: str) -> tuple[KeyColumn, ...]:
        table = self._table(at)
        if not table:
            raise self._wrong(at, "needs at least one column")
        return tuple(KeyColumn(name, self._text(f"{at}.{name}.sql"), self._text(f"{at}.{name}.type")) for name in table)

    def _states(self, at: str) -> dict[tuple[State, Reason | None], str]:
        found: dict[tuple[State, Reason | None], str] = {}
        for name, value in self._table(at).items():
            if name not in set(State):
                raise self._wrong(f"{at}.{name}", f"is no state; states are {', '.join(State)}")
            if name != State.STUCK:
                found[State(name), None] = self._text(f"{at}.{name}")
            elif not isinstance(value, dict) or not value.keys() <= set(Reason):
                raise self._wrong(f"{at}.stuck", f"is a table with a predicate for each of {', '.join(Reason)}")
            else:
                found |= {(State.STUCK, Reason(why)): self._text(f"{at}.stuck.{why}") for why in value}
        return found

    def _by_state(self, at: str, extra: str | None = None) -> dict[State, str]:
        if self._find(at) is None:
            return {}
        table = self._table(at)
        for key in table.keys() - set(State) - {extra}:
            raise self._wrong(f"{at}.{key}", f"is no state; states are {', '.join(State)}")
        default = self._text(f"{at}.{extra}") if extra in table else None
        chosen = {state: self._text(f"{at}.{state}") for state in State if state in table}
        return {state: default for state in State if default} | chosen

    def _params(self) -> dict[str, Parameter]:
        found = {}
        for name in self._find("params") or {}:
            kind = self._text(f"params.{name}.type")
            if kind not in _PARAMETER_TYPES:
                raise self._wrong(f"params.{name}.type", f"is '{kind}'; it is one of {', '.join(_PARAMETER_TYPES)}")
            note = self._optional(f"params.{name}.note") or ""
            found[name] = Parameter(kind, self._text(f"params.{name}.default"), note)
        return found

    def _detection(self) -> Detection | None:
        if self._find("detect") is None:
            return None
        tables = self._table("detect.tables")
        return Detection(
            {name: self._texts(f"detect.tables.{name}") for name in tables}, frozenset(self._texts("detect.without"))
        )

    def _looks(self) -> Looks | None:
        if self._find("trends") is None:
            return None
        for name in self._table("trends").keys() - {"sql", "statement", "noisy", "poison"}:
            raise self._wrong(f"trends.{name}", "is not known; known are noisy, poison, sql, statement")
        return Looks(
            self._statement("trends"),
            *(
                None if self._find(f"trends.{name}") is None else self._statement(f"trends.{name}")
                for name in ("noisy", "poison")
            ),
        )

    def _statement(self, at: str) -> str:
        """A statement of sql/, named, or one that is written out."""
        if self._find(f"{at}.statement") is None:
            return self._text(f"{at}.sql")
        return statements.text(self._text(f"{at}.statement"))

    def _actions(self, fence: str) -> dict[str, Action]:
        found = {}
        for name, value in (self._find("actions") or {}).items():
            at = f"actions.{name}"
            if not isinstance(value, dict):
                raise self._wrong(at, "must be a table")
            delegate, sql = self._optional(f"{at}.delegate"), None
            if "statement" in value:
                sql = statements.text(self._text(f"{at}.statement"))
            elif delegate is None:
                sql = self._text(f"{at}.sql").replace("${fence}", f"({fence})")
            elif "sql" in value:
                raise self._wrong(at, "has both sql and delegate: it is one or the other")
            for key in value.keys() - _ACTION:
                raise self._wrong(f"{at}.{key}", f"is not known; known are {', '.join(sorted(_ACTION))}")
            confirm, needs = self._optional(f"{at}.confirm"), self._optional(f"{at}.needs")
            locks = range(len(self._texts(f"{at}.lock")))
            lock = tuple(self._text(f"{at}.lock.{n}").replace("${fence}", f"({fence})") for n in locks)
            found[name] = Action(sql, self._optional(f"{at}.effect") or "", delegate, confirm, needs, lock)
        return found

    def _find(self, path: str) -> Any:
        value: Any = self._raw
        for name in path.split("."):
            if isinstance(value, list) and name.isdigit() and int(name) < len(value):
                value = value[int(name)]
            else:
                value = value.get(name) if isinstance(value, dict) else None
        return value

    def _table(self, path: str) -> Mapping[str, Any]:
        value = self._find(path)
        if not isinstance(value, dict):
            raise self._wrong(path, "is missing: it must be a table" if value is None else "must be a table")
        return value

    def _strings(self, path: str) -> dict[str, str]:
        found = self._find(path) or {}
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise self._wrong(path, "must be a table of texts")
        return dict(found)

    def _texts(self, path: str) -> tuple[str, ...]:
        value = self._find(path) or []
        if not isinstance(value, list) or not all(isinstance(note, str) for note in value):
            raise self._wrong(path, "must be a list of texts")
        return tuple(value)

    def _text(self, path: str) -> str:
        value = self._find(path)
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(path, "is missing: it must be a text" if value is None else "must be a text")
        return _IDENTIFIER.sub(lambda match: self._identifier(path, match), value)

    def _identifier(self, path: str, match: re.Match[str]) -> str:
        name = match[1]
        if name == "fence" and path.startswith("actions."):
            return match[0]
        if name in self._names:
            return statements.quote_identifier(self._names[name])
        if "discover" in self._raw:
            # Known only once the queues of a database have been looked for.
            return match[0]
        raise self._wrong(path, f"has ${{{name}}}, which [names] does not give")

    def _optional(self, path: str) -> str | None:
        return None if self._find(path) is None else self._text(path)

    def _wrong(self, key: str, reason: str) -> ProfileError:
        return ProfileError(f"{self._origin}: {key} {reason}")
