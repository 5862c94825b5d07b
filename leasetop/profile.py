"""What a table's columns mean: profiles, loaded from TOML and checked.

A profile is SQL that the operator runs: it is loaded from files only, never from the database or the network. It says
where the jobs are (`source`, `key`), what each canonical field is (`columns`), which rows are in which shown state
(`states`, used in WHERE as written), and what may be done (`actions`). All reads and acts are built from it
(reading.py, queue.py), the home table's too: there is one path.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leasetop import statements
from leasetop.errors import LeasetopError
from leasetop.model import Reason, State

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
    "kind": "text",
    "attempts": "bigint",
    "max_attempts": "bigint",
    "created_at": "timestamptz",
    "run_after": "timestamptz",
    "finished_at": "timestamptz",
    "error": "text",
    "idempotency_key": "text",
    "amount": "text",
}

_TOP = {
    *("id", "title", "evidence", "completion_fenced", "detect", "source", "key", "columns", "states", "since"),
    *("order", "history", "throughput", "watchers", "actions", "notes"),
}

_EVIDENCE = frozenset({"lease", "heartbeat", "session", "age"})


class ProfileError(LeasetopError):
    """A profile that cannot be used: names the file, the key and the reason."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a job's key: its SQL, and the type that an act casts it back to."""

    name: str
    sql: str
    type: str


@dataclass(frozen=True, slots=True)
class Action:
    """A guarded write. `sql` takes `:key_NAME` and `:fence`, and returns a row for each job that it changed."""

    sql: str
    effect: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A queue, described. SQL is text with `:name` parameters; see statements.bind."""

    id: str
    title: str
    evidence: str
    completion_fenced: bool
    detect: str
    source: str
    key: tuple[KeyColumn, ...]
    columns: Mapping[str, str]
    states: Mapping[tuple[State, Reason | None], str]
    """Predicate for each shown state; stuck has one for each reason."""
    since: Mapping[State, str]
    order: Mapping[State, str]
    history: str | None
    throughput: str | None
    watchers: str | None
    actions: Mapping[str, Action]
    notes: tuple[str, ...] = ()
    """What this table lacks, in words for the operator."""

    def keeps(self, state: State) -> bool:
        """Whether this table can tell jobs in that state at all."""
        return any(known is state for known, _ in self.states)


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


def read(raw: Mapping[str, Any], origin: str) -> Profile:
    """A profile from its document; `origin` is named in complaints. Raises ProfileError."""
    return _Reader(origin, raw).profile()


def written(raw: Mapping[str, Any]) -> str:
    """The document as TOML, for a person to read and change."""
    plain = [f"{name} = {_toml(value)}" for name, value in raw.items() if not isinstance(value, Mapping)]
    return "\n".join(plain) + "\n" + "".join(_section(name, value) for name, value in raw.items())


def _section(path: str, value: object) -> str:
    if not isinstance(value, Mapping):
        return ""
    plain = [f"{_toml_key(name)} = {_toml(one)}" for name, one in value.items() if not isinstance(one, Mapping)]
    head = f"\n[{path}]\n" + "\n".join(plain) + "\n" if plain else ""
    return head + "".join(_section(f"{path}.{_toml_key(name)}", one) for name, one in value.items())


def _toml_key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else json.dumps(name)


def _toml(value: object) -> str:
    if isinstance(value, str) and "\n" in value and "'''" not in value:
        return f"'''\n{value}'''"
    # A TOML basic string, boolean or array of strings is written as JSON writes it.
    return json.dumps(value, ensure_ascii=True)


class _Reader:
    """Takes a parsed TOML document apart; every complaint names the file and the key."""

    def __init__(self, origin: str, raw: Mapping[str, Any]) -> None:
        self._origin = origin
        self._raw = raw

    def profile(self) -> Profile:
        for name in self._raw.keys() - _TOP:
            raise self._wrong(name, f"is not known; known are {', '.join(sorted(_TOP))}")
        columns = self._table("columns")
        for name in columns.keys() - COLUMNS.keys():
            raise self._wrong(f"columns.{name}", f"is not known; known are {', '.join(sorted(COLUMNS))}")
        for name in ("status", "fence"):
            self._text(f"columns.{name}")
        evidence = self._text("evidence")
        if evidence not in _EVIDENCE:
            raise self._wrong("evidence", f"is '{evidence}'; it is one of {', '.join(sorted(_EVIDENCE))}")
        fenced = self._find("completion_fenced")
        if not isinstance(fenced, bool):
            raise self._wrong("completion_fenced", "must be true or false")
        order = self._by_state("order", extra="default")
        return Profile(
            id=self._text("id"),
            title=self._text("title"),
            evidence=evidence,
            completion_fenced=fenced,
            detect=self._text("detect.sql"),
            source=self._text("source.from"),
            key=self._key(),
            columns={name: self._text(f"columns.{name}") for name in COLUMNS if name in columns},
            states=self._states(),
            since=self._by_state("since"),
            order=order,
            history=self._optional("history.sql"),
            throughput=self._optional("throughput.sql"),
            watchers=self._optional("watchers.sql"),
            actions=self._actions(),
            notes=self._notes(),
        )

    def _key(self) -> tuple[KeyColumn, ...]:
        table = self._table("key")
        if not table:
            raise self._wrong("key", "needs at least one column")
        return tuple(KeyColumn(name, self._text(f"key.{name}.sql"), self._text(f"key.{name}.type")) for name in table)

    def _states(self) -> dict[tuple[State, Reason | None], str]:
        found: dict[tuple[State, Reason | None], str] = {}
        for name, value in self._table("states").items():
            if name not in set(State):
                raise self._wrong(f"states.{name}", f"is no state; states are {', '.join(State)}")
            if name != State.STUCK:
                found[State(name), None] = self._text(f"states.{name}")
            elif not isinstance(value, dict) or not value.keys() <= set(Reason):
                raise self._wrong("states.stuck", f"is a table with a predicate for each of {', '.join(Reason)}")
            else:
                found |= {(State.STUCK, Reason(why)): self._text(f"states.stuck.{why}") for why in value}
        return found

    def _by_state(self, name: str, extra: str | None = None) -> dict[State, str]:
        table = self._table(name)
        for key in table.keys() - set(State) - {extra}:
            raise self._wrong(f"{name}.{key}", f"is no state; states are {', '.join(State)}")
        default = self._text(f"{name}.{extra}") if extra in table else None
        chosen = {state: self._text(f"{name}.{state}") for state in State if state in table}
        return {state: default for state in State if default} | chosen

    def _actions(self) -> dict[str, Action]:
        found = {}
        for name, value in self._table("actions").items():
            statement = value.get("statement") if isinstance(value, dict) else None
            sql = statements.text(str(statement)) if statement else self._text(f"actions.{name}.sql")
            found[name] = Action(sql, self._optional(f"actions.{name}.effect") or "")
        return found

    def _notes(self) -> tuple[str, ...]:
        value = self._find("notes") or []
        if not isinstance(value, list) or not all(isinstance(note, str) for note in value):
            raise self._wrong("notes", "must be a list of texts")
        return tuple(value)

    def _find(self, path: str) -> Any:
        value: Any = self._raw
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def _table(self, path: str) -> Mapping[str, Any]:
        value = self._find(path)
        if not isinstance(value, dict):
            raise self._wrong(path, "is missing: it must be a table")
        return value

    def _text(self, path: str) -> str:
        value = self._find(path)
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(path, "is missing: it must be a text" if value is None else "must be a text")
        return value

    def _optional(self, path: str) -> str | None:
        return None if self._find(path) is None else self._text(path)

    def _wrong(self, key: str, reason: str) -> ProfileError:
        return ProfileError(f"{self._origin}: {key} {reason}")
