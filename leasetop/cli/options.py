"""The options that commands share, and what they come to once environment and file of settings are taken in."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leasetop.cli.errors import DSN_FROM
from leasetop.errors import LeasetopError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from leasetop.config import Environment, Settings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _seconds(ctx: click.Context, parameter: click.Parameter, value: float | None) -> timedelta | None:
    if value is None:
        return None
    if not 0 < value < 1e7:
        raise click.BadParameter("must be more than 0 seconds")
    return timedelta(seconds=value)


def _inherit(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """`leasetop --dsn X status` means the same as `leasetop status --dsn X`."""
    while value is None and ctx.parent is not None:
        ctx = ctx.parent
        value = ctx.params.get(parameter.name or "")
    return value


def _inherit_many(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    while not value and ctx.parent is not None:
        ctx = ctx.parent
        value = ctx.params.get(parameter.name or "", ())
    return value


def _environment_names(ctx: click.Context, parameter: click.Parameter, begun: str) -> "list[CompletionItem[str]]":
    from click.shell_completion import CompletionItem

    from leasetop import config

    try:
        names = dict.fromkeys(one.name for one in config.load().environments if one.dsn is not None)
    except LeasetopError:
        return []
    return [CompletionItem(name) for name in names if name.startswith(begun)]


@dataclass(frozen=True)
class Place:
    """Which database, and whether to write there, as the flags say it."""

    dsn: str | None
    env: str | None
    read_only: bool | None


@dataclass(frozen=True)
class Settled:
    """A place with the environment and the file of settings taken in."""

    dsn: str | None
    settings: "Settings"
    environment: "Environment | None"
    """The one that --env asked for."""

    @property
    def is_read_only(self) -> bool:
        """Whether that is settled before anybody knows which database it is."""
        return self._why_read_only(self.environment) is not None

    @property
    def asks_title(self) -> bool:
        """Whether it depends on which database it is."""
        known = self.settings.config.environments
        return not self.settings.read_only_is_final and any(one.read_only for one in known)

    def why_read_only(self, title: str | None) -> str | None:
        """Why nothing may be written to `database@host`, in words; None: it may."""
        from leasetop import config

        matched = config.environment_for(title, self.settings.config) if title else None
        return self._why_read_only(self.environment) or self._why_read_only(matched)

    def _why_read_only(self, environment: "Environment | None") -> str | None:
        from leasetop import config

        if self.settings.config.read_only:
            source = self.settings.sources["read_only"]
            return f"read_only is set by {config.path() if source == 'file' else source}"
        if environment is not None and environment.read_only and not self.settings.read_only_is_final:
            return f"{config.path()} has environment {environment.name} read-only, which --no-read-only lifts"
        return None


def where(dsn: str | None, env: str | None) -> "tuple[str | None, Environment | None]":
    """The DSN: of the flags, of LEASETOP_DSN, or none, and then libpq's own environment counts."""
    meta = click.get_current_context().meta
    if dsn is not None and env is not None:
        raise click.UsageError("give one of --dsn and --env")
    if env is not None:
        from leasetop import config

        chosen = config.environment_named(env)
        meta[DSN_FROM] = f"environment.{env}.dsn of {config.path()}"
        return chosen.dsn, chosen
    if dsn is None and os.environ.get("LEASETOP_DSN"):
        meta[DSN_FROM] = "LEASETOP_DSN"
        return os.environ["LEASETOP_DSN"], None
    meta[DSN_FROM] = None if dsn is None else "--dsn"
    return dsn, None


def settle(place: Place, interval: timedelta | None = None, policy: str | None = None) -> Settled:
    from leasetop import config

    dsn, environment = where(place.dsn, place.env)
    settings = config.settings(
        interval_s=interval.total_seconds() if interval else None, on_expiry=policy, read_only=place.read_only
    )
    return Settled(dsn, settings, environment)


def dsn_options(command: Callable[..., T]) -> Callable[..., T]:
    """--dsn and --env, which arrive as one `dsn`."""

    @functools.wraps(command)
    def with_dsn(*words: Any, dsn: str | None, env: str | None, **more: Any) -> T:
        return command(*words, dsn=where(dsn, env)[0], **more)

    return _dsn_option(_env_option(with_dsn))


def place_options(command: Callable[..., T]) -> Callable[..., T]:
    """--dsn, --env and --read-only, which arrive as one `place`."""

    @functools.wraps(command)
    def with_place(*words: Any, dsn: str | None, env: str | None, read_only: bool | None, **more: Any) -> T:
        return command(*words, place=Place(dsn, env, read_only), **more)

    return _dsn_option(_env_option(_read_only_option(with_place)))


_dsn_option = click.option(
    "--dsn",
    metavar="DSN",
    callback=_inherit,
    help="postgresql://user@host:port/database or key=value pairs; without it LEASETOP_DSN, or libpq's environment "
    "(PGHOST, PGSERVICE, PGPASSFILE, ...) and defaults.",
)
_env_option = click.option(
    "--env",
    metavar="NAME",
    callback=_inherit,
    shell_complete=_environment_names,
    help="Go where the [[environment]] of that name goes, in the file of leasetop config.",
)
_read_only_option = click.option(
    "--read-only/--no-read-only",
    default=None,
    callback=_inherit,
    help="Only look: the database itself refuses writes. Also LEASETOP_READ_ONLY, and read_only in leasetop config.",
)


@dataclass(frozen=True)
class Target:
    """Which queue of which database."""

    place: Place
    table: str | None
    profile: Path | None
    queue: str | None
    params: tuple[tuple[str, str], ...]


def target_options(command: Callable[..., T]) -> Callable[..., T]:
    """Those of a place, --queue, --table, --profile and --param, which arrive as one `target`."""

    @functools.wraps(command)
    def with_target(
        *words: Any,
        place: Place,
        table: str | None,
        profile: Path | None,
        queue: str | None,
        params: tuple[str, ...],
        **more: Any,
    ) -> T:
        if sum(one is not None for one in (table, profile, queue)) > 1:
            raise click.UsageError("give one of --queue, --table and --profile")
        values = tuple(pairs(params, "--param").items())
        return command(*words, target=Target(place, table, profile, queue, values), **more)

    queue = click.option(
        "--queue", metavar="NAME", callback=_inherit, help="Which, where there are several: as leasetop queues has it."
    )
    param = click.option(
        "--param",
        "params",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_inherit_many,
        help="A parameter of the profile, as the queue's workers have it: stale_after='90 seconds'.",
    )

    table = click.option(
        "--table", metavar="TABLE", callback=_inherit, help="A table of your own, understood by its columns."
    )
    profile = click.option(
        "--profile",
        metavar="FILE",
        type=click.Path(path_type=Path),
        callback=_inherit,
        help="A profile that says what a table's columns mean (leasetop profile writes one). It is SQL that is run.",
    )
    return place_options(queue(table(profile(param(with_target)))))


def pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not value or not name.strip():
            raise click.BadParameter(f"'{one}' is not of the form NAME=VALUE", param_hint=option)
        found[name.strip()] = value.strip()
    return found


sure_option = click.option(
    "--sure",
    is_flag=True,
    help="You have made sure that the owners are dead, where nothing in the database proves it.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")


def _policy(default: str | None, words: str) -> Callable[[F], F]:
    return click.option(
        "--on-expiry",
        "policy",
        type=click.Choice(["requeue", "park"]),
        default=default,
        show_default=True,
        help=f"What becomes of a job whose lease ran out: tried again, or parked for a person.{words}",
    )


policy_option = _policy("requeue", "")
operators_policy_option = _policy(None, "  [default: on_expiry of leasetop config, or requeue]")


def seconds_option(name: str, default: float | None, words: str) -> Callable[[F], F]:
    """An option in seconds that arrives as a timedelta."""
    return click.option(
        name, type=float, default=default, metavar="SECONDS", show_default=True, callback=_seconds, help=words
    )
