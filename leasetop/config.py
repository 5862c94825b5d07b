"""The operator's settings: flags, before the environment, before the file, before the defaults.

The file is TOML and belongs to the operator; what is wrong in it is said with file, key and reason. It holds no
password, and none that was put into it by mistake is repeated: complaints never quote a DSN.
"""

import math
import os
import re
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import platformdirs

from leasetop import toml
from leasetop.errors import CommandError
from leasetop.model import Policy

Times = Literal["utc", "local"]
Colour = Literal["red", "yellow", "green", "blue", "magenta", "cyan"]

COLOURS: tuple[Colour, ...] = ("red", "yellow", "green", "blue", "magenta", "cyan")
TIMES: tuple[Times, ...] = ("utc", "local")
LONGEST_INTERVAL_S = 1e7

MASKED = (
    *("password", "passwd", "secret", "token", "authorization", "api_key", "access_token", "refresh_token"),
    *("client_secret", "private_key", "card_number", "pan", "cvv", "cvc", "iban", "account_number"),
)
"""Keys whose values are hidden where nobody says otherwise."""
_HOUR = timedelta(hours=1)
_MOST_HOURS = 1e6
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_URI = re.compile(r"(?i)postgres(?:ql)?://")
# libpq's secrets (password, sslpassword, oauth_client_secret, scram_client_key), and what others call a password.
_SECRET = re.compile(r"(?i)(?:pass(?!file)|pwd|secret|token|scram_)\w*\s*=")


class ConfigError(CommandError):
    """Settings that cannot be used: names the file or variable, the key and the reason."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a database is to the operator: production, or a place to play."""

    name: str
    match: str
    """A shell-style pattern on `database@host`, as the header shows it."""
    colour: Colour
    read_only: bool = False
    dsn: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings, with a default for each."""

    interval_s: float = 1.0
    on_expiry: Policy = Policy.REQUEUE
    read_only: bool = False
    require_reason: bool = True
    theme: str | None = None
    idempotency_window: timedelta = timedelta(hours=24)
    mask: tuple[str, ...] = MASKED
    """Keys of a payload whose values are hidden."""
    times: Times = "utc"
    environments: tuple[Environment, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective settings, and where each comes from."""

    config: Config
    sources: Mapping[str, str]
    """`flag --interval`, `environment LEASETOP_INTERVAL`, `file` or `default`, by the name of Config's field."""

    @property
    def read_only_is_final(self) -> bool:
        """Whether a flag or the environment decides on read-only: no [[environment]] of the file is then asked."""
        return self.sources["read_only"] not in ("file", "default")


_KEYS: Mapping[str, str] = {
    "interval_s": "How often the screen is refreshed, in seconds (--interval, LEASETOP_INTERVAL).",
    "on_expiry": "What a sweep by you makes of a job whose lease ran out: requeue (tried again) or park (waits for a "
    "person). Workers and watchers are told by their own --on-expiry.",
    "read_only": "Only look: transactions are read-only in the database (--read-only, LEASETOP_READ_ONLY).",
    "require_reason": "Whether an act asks why, for the history.",
    "theme": "A theme of the screen, by its name. Not set: as the terminal is.",
    "idempotency_window": "For how many hours the payment provider knows an idempotency key again: beyond it, a "
    "payment that is run again may be made twice.",
    "mask": "Keys of a payload whose values are hidden, whatever their case and punctuation. A list here stands "
    "instead of this one, not beside it.",
    "times": "Absolute times in utc, or in the local zone of this machine.",
}
"""The file's plain keys in its order, with what the template says of each."""

_EXAMPLE = """\
# What your databases are to you. The first whose `match` fits is taken: a shell-style pattern on database@host as the
# header shows it (a unix socket's host is `local`), whatever the case.
# `colour` is one of {colours}.
# With `read_only`, leasetop only looks there; --no-read-only lifts that for once. `dsn` is where leasetop --env NAME
# goes; no password in it: that belongs into ~/.pgpass or PGPASSWORD.
#
#[[environment]]
#name = "prod"
#match = "payments@prod-*"
#colour = "red"
#read_only = true
#dsn = "postgresql://ops@prod-db1/payments"
"""


def path() -> Path:
    """Where the file is, or would be: LEASETOP_CONFIG, or config.toml in the user's directory for settings."""
    given = os.environ.get("LEASETOP_CONFIG")
    if given:
        return Path(os.path.expanduser(given))
    return Path(platformdirs.user_config_path("leasetop")) / "config.toml"


def load(file: Path | None = None) -> Config:
    """What the file says, and defaults for the rest; without a file all defaults. Raises ConfigError."""
    found = file or path()
    return _Reader(str(found), _document(found)).config()


def settings(
    *, interval_s: float | None = None, on_expiry: str | None = None, read_only: bool | None = None
) -> Settings:
    """The effective settings: what is given here are flags; None is a flag that was not given. Raises ConfigError."""
    file = path()
    raw = _document(file)
    config = _Reader(str(file), raw).config()
    sources = {name: "file" if name in raw else "default" for name in _KEYS}
    sources["environments"] = "file" if "environment" in raw else "default"
    chosen: dict[str, Any] = {}
    for name, variable, value in (
        ("interval_s", "LEASETOP_INTERVAL", _interval_variable()),
        ("read_only", "LEASETOP_READ_ONLY", _read_only_variable()),
    ):
        if value is not None:
            chosen[name], sources[name] = value, f"environment {variable}"
    if interval_s is not None:
        chosen["interval_s"], sources["interval_s"] = interval_s, "flag --interval"
    if on_expiry is not None:
        chosen["on_expiry"], sources["on_expiry"] = Policy(on_expiry), "flag --on-expiry"
    if read_only is not None:
        chosen["read_only"] = read_only
        sources["read_only"] = "flag --read-only" if read_only else "flag --no-read-only"
    return Settings(replace(config, **chosen), sources)


def environment_for(title: str, config: Config | None = None) -> Environment | None:
    """The first environment whose pattern fits `database@host`; without `config`, of the file. Raises ConfigError."""
    known = (config or load()).environments
    # Host names have no case; to take a database for production once too often is the better mistake.
    return next((one for one in known if fnmatchcase(title.lower(), one.match.lower())), None)


def environment_named(name: str, config: Config | None = None) -> Environment:
    """The environment that `--env NAME` asks for, which must have a DSN. Raises ConfigError."""
    known = (config or load()).environments
    named = [one for one in known if one.name == name]
    reachable = [one for one in named if one.dsn is not None]
    if reachable:
        return reachable[0]
    if named:
        raise ConfigError(f"{path()}: environment.{name}.dsn is missing: --env {name} goes there; or give --dsn")
    names = ", ".join(dict.fromkeys(one.name for one in known)) or "none is there"
    raise ConfigError(f"{path()}: environment.{name} is missing: --env takes the name of an [[environment]]: {names}")


def init(replace_it: bool = False) -> Path:
    """Writes the template to where the file belongs, mode 0600, and says where that is. Raises ConfigError."""
    file = path()
    # A link that is there stays one.
    target = file.resolve() if replace_it else file
    fresh = target.with_name(f".{target.name}.new") if replace_it else target
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if replace_it:
            fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as made:
            made.write(template())
        if replace_it:
            fresh.replace(target)
    except FileExistsError:
        if not file.parent.is_dir():
            raise ConfigError(f"{file}: cannot be written: {file.parent} is no directory") from None
        raise ConfigError(f"{file} is there already: say --yes to replace it") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
    return file


def template() -> str:
    """A file with every key at its default, commented out, so that better defaults of later versions count."""
    parts = ["# Settings of leasetop: remove the # before a key to change it. What counts: leasetop config --show\n"]
    defaults = _plain(Config()) | {"theme": "textual-dark"}
    for name, words in _KEYS.items():
        note = textwrap.fill(words, 118, initial_indent="# ", subsequent_indent="# ")
        line = textwrap.fill(f"{name} = {toml.value(defaults[name])}", 118, initial_indent="#", subsequent_indent="#")
        parts.append(f"{note}\n{line}\n")
    parts.append(_EXAMPLE.format(colours=", ".join(COLOURS)))
    return "\n".join(parts)


def shown(config: Config, sources: Mapping[str, str] | None = None) -> str:
    """The effective values as TOML; with `sources`, where each comes from stands beside it."""
    lines = []
    for name, value in _plain(config).items():
        line = f"# {name} is not set" if value is None else f"{name} = {toml.value(value)}"
        lines.append(f"{line}  # {sources[name]}" if sources else line)
    for one in config.environments:
        lines += ["", f"[[environment]]  # {sources['environments']}" if sources else "[[environment]]"]
        for name in ("name", "match", "colour"):
            lines.append(f"{name} = {toml.value(getattr(one, name))}")
        if one.read_only:
            lines.append("read_only = true")
        # One that load() gave has no password; one that was made otherwise is not shown.
        if one.dsn is not None and _dsn_trouble(one.dsn) is None:
            lines.append(f"dsn = {toml.value(one.dsn)}")
        elif one.dsn is not None:
            lines.append("# dsn is set, and not shown")
    return "\n".join(lines) + "\n"


def _plain(config: Config) -> dict[str, Any]:
    """The plain keys as the file has them."""
    hours = config.idempotency_window / _HOUR
    return {name: getattr(config, name) for name in _KEYS} | {
        "idempotency_window": int(hours) if hours.is_integer() else hours
    }


def _document(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is no TOML: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is no TOML: {error}") from None


def _interval_variable() -> float | None:
    given = os.environ.get("LEASETOP_INTERVAL")
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < LONGEST_INTERVAL_S:
        raise ConfigError("LEASETOP_INTERVAL must be a number of seconds above 0")
    return seconds


def _read_only_variable() -> bool | None:
    given = os.environ.get("LEASETOP_READ_ONLY", "").strip().lower()
    if not given:
        return None
    if given not in _ON + _OFF:
        # Never taken for false: whoever sets it wants to be safe.
        raise ConfigError("LEASETOP_READ_ONLY must be 1 or 0 (true, yes, on; false, no, off)")
    return given in _ON


def _dsn_trouble(dsn: str) -> str | None:
    """What is wrong with a DSN for the file, without repeating any of it."""
    # Before an @ stands the user; a colon there begins a password, however wrongly the whole is written.
    if _SECRET.search(unquote(dsn)) or ":" in _URI.sub("", dsn, count=1).rpartition("@")[0]:
        return "holds a password: take it out, and put it into ~/.pgpass or PGPASSWORD"
    if not _URI.match(dsn) and "=" not in dsn:
        return "is neither a postgresql://user@host:port/database URI nor key=value pairs such as 'host=db1 dbname=pay'"
    return None


class _Reader:
    """Takes the parsed file apart; every complaint names the file and the key."""

    def __init__(self, origin: str, raw: Mapping[str, Any]) -> None:
        self._origin = origin
        self._raw = raw

    def config(self) -> Config:
        self._known("", self._raw, (*_KEYS, "environment"))
        default = Config()
        hours = self._number("idempotency_window", default.idempotency_window / _HOUR, _MOST_HOURS, "hours")
        return Config(
            interval_s=self._number("interval_s", default.interval_s, LONGEST_INTERVAL_S, "seconds"),
            on_expiry=Policy(self._one_of("on_expiry", self._raw, tuple(Policy), default.on_expiry)),
            read_only=self._flag("read_only", self._raw, default.read_only),
            require_reason=self._flag("require_reason", self._raw, default.require_reason),
            theme=self._text("theme", self._raw) if "theme" in self._raw else default.theme,
            idempotency_window=timedelta(hours=hours),
            mask=self._mask(default.mask),
            times=self._one_of("times", self._raw, TIMES, default.times),
            environments=self._environments(),
        )

    def _environments(self) -> tuple[Environment, ...]:
        listed = self._raw.get("environment", [])
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise self._wrong("environment", "is a list of tables: write [[environment]]")
        found: list[Environment] = []
        for n, one in enumerate(listed, 1):
            made = self._environment(n, one)
            if made.dsn is not None and any(made.name == other.name and other.dsn for other in found):
                raise self._wrong(f"environment.{made.name}.dsn", "is given twice: --env would not know where to go")
            found.append(made)
        return tuple(found)

    def _environment(self, n: int, raw: Mapping[str, Any]) -> Environment:
        at = f"environment.{n}."
        name = self._text("name", raw, at)
        at = f"environment.{name}."
        self._known(at, raw, ("name", "match", "colour", "read_only", "dsn"))
        match = self._text("match", raw, at)
        if "@" not in match and "*" not in match:
            raise self._wrong(f"{at}match", "can match nothing: it is a pattern on database@host: 'payments@prod-*'")
        if "colour" not in raw:
            raise self._wrong(f"{at}colour", f"is missing: it is one of {', '.join(COLOURS)}")
        dsn = self._text("dsn", raw, at) if "dsn" in raw else None
        trouble = dsn and _dsn_trouble(dsn)
        if trouble:
            raise self._wrong(f"{at}dsn", trouble)
        colour = self._one_of("colour", raw, COLOURS, COLOURS[0], at)
        return Environment(name, match, colour, self._flag("read_only", raw, False, at), dsn)

    def _mask(self, default: tuple[str, ...]) -> tuple[str, ...]:
        given = self._raw.get("mask")
        if given is None:
            return default
        if not isinstance(given, list) or not all(isinstance(one, str) and one.strip() for one in given):
            raise self._wrong("mask", "must be a list of texts, each the name of a key")
        return tuple(given)

    def _known(self, at: str, raw: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        for name in sorted(raw.keys() - set(keys)):
            raise self._wrong(f"{at}{name}", f"is not known; known are {', '.join(keys)}")

    def _number(self, key: str, default: float, most: float, unit: str) -> float:
        value = self._raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, f"must be a number of {unit}")
        if not 0 < value < most:
            raise self._wrong(key, f"must be more than 0 {unit}, and less than {most:.0f}")
        return float(value)

    def _flag(self, key: str, raw: Mapping[str, Any], default: bool, at: str = "") -> bool:
        value = raw.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(f"{at}{key}", "must be true or false")
        return value

    def _text(self, key: str, raw: Mapping[str, Any], at: str = "") -> str:
        value = raw.get(key)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self._wrong(f"{at}{key}", "is missing: it must be a text" if value is None else "must be a text")
        return value

    def _one_of(self, key: str, raw: Mapping[str, Any], choices: tuple[Any, ...], default: Any, at: str = "") -> Any:
        value = raw.get(key, default)
        if not isinstance(value, str) or value not in choices:
            said = f"is '{value[:40]}'" if isinstance(value, str) else "is no text"
            raise self._wrong(f"{at}{key}", f"{said}; it is one of {', '.join(choices)}")
        return value

    def _wrong(self, key: str, reason: str) -> ConfigError:
        return ConfigError(f"{self._origin}: {key} {reason}")
