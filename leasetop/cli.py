"""The command line: parses, hands on, prints, and chooses the exit status.

0: done. 1: refused or failed, for a reason that is printed. 2: the command itself is wrong. Everything heavy is
imported by the command that needs it, so that `leasetop --version` is instant and a worker loads no screen.
"""

import functools
import json
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from leasetop.errors import CommandError, DsnError, LeasetopError, ReadOnly, Refused, Unreachable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from leasetop.config import Environment, Settings
    from leasetop.database import Database
    from leasetop.demo.fleet import Fleet
    from leasetop.model import Job
    from leasetop.queue import Queue

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# In click's `meta`, which a command shares with the group: where the DSN came from, and why nothing may be written.
_DSN_FROM = "leasetop.dsn_from"
_READ_ONLY = "leasetop.read_only"


class _Errors(click.Group):
    """Turns an error for a person into one line on standard error and an exit status; never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            _fail(_about_dsn(error, ctx) if isinstance(error, DsnError) else str(error), 2)
        except Unreachable as error:
            hint = "; no --dsn was given and libpq's defaults were tried. To look around: leasetop demo"
            _fail(_about_dsn(error, ctx) if ctx.meta.get(_DSN_FROM) else f"{error}{hint}", 1)
        except LeasetopError as error:
            why = ctx.meta.get(_READ_ONLY) if isinstance(error, ReadOnly) else None
            _fail(f"{error}; {why}" if why else str(error), 1)
        except UnicodeError:
            _fail("an argument is not valid UTF-8", 2)
        except OSError as error:
            # A pipe that was closed is click's; a full disk or a closed standard output is said here.
            if isinstance(error, BrokenPipeError):
                raise
            _fail(error.strerror or str(error), 1)


def _about_dsn(error: LeasetopError, ctx: click.Context) -> str:
    """The error, with what gave the DSN in the place of --dsn."""
    return str(error).replace("--dsn", ctx.meta.get(_DSN_FROM) or "--dsn")


def _fail(message: str, status: int) -> NoReturn:
    from leasetop import text

    click.echo(f"leasetop: {text.safe(message)}", err=True)
    sys.exit(status)


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


def _where(dsn: str | None, env: str | None) -> "tuple[str | None, Environment | None]":
    """The DSN: of the flags, of LEASETOP_DSN, or none, and then libpq's own environment counts."""
    meta = click.get_current_context().meta
    if dsn is not None and env is not None:
        raise click.UsageError("give one of --dsn and --env")
    if env is not None:
        from leasetop import config

        chosen = config.environment_named(env)
        meta[_DSN_FROM] = f"environment.{env}.dsn of {config.path()}"
        return chosen.dsn, chosen
    if dsn is None and os.environ.get("LEASETOP_DSN"):
        meta[_DSN_FROM] = "LEASETOP_DSN"
        return os.environ["LEASETOP_DSN"], None
    meta[_DSN_FROM] = None if dsn is None else "--dsn"
    return dsn, None


def _settle(place: Place, interval: timedelta | None = None, policy: str | None = None) -> Settled:
    from leasetop import config

    dsn, environment = _where(place.dsn, place.env)
    settings = config.settings(
        interval_s=interval.total_seconds() if interval else None, on_expiry=policy, read_only=place.read_only
    )
    return Settled(dsn, settings, environment)


def dsn_options(command: Callable[..., T]) -> Callable[..., T]:
    """--dsn and --env, which arrive as one `dsn`."""

    @functools.wraps(command)
    def with_dsn(*words: Any, dsn: str | None, env: str | None, **more: Any) -> T:
        return command(*words, dsn=_where(dsn, env)[0], **more)

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
        pairs = tuple(_pairs(params, "--param").items())
        return command(*words, target=Target(place, table, profile, queue, pairs), **more)

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


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
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


@click.group(cls=_Errors, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("leasetop"), "--version", "-V", prog_name="leasetop")
@seconds_option(
    "--interval",
    None,
    "How often the screen is refreshed.  [default: LEASETOP_INTERVAL, interval_s of leasetop config, or 1.0]",
)
@operators_policy_option
@click.pass_context
@target_options
def main(ctx: click.Context, target: Target, interval: timedelta | None, policy: str | None) -> None:
    """See and mend PostgreSQL job queues that hand out work by lease.

    Without a command it opens the screen. To look around without a database of your own: leasetop demo.
    """
    if ctx.invoked_subcommand is None:
        _need_terminal("leasetop status")
        _run(_screen(target, _settle(target.place, interval, policy)))


@main.command()
@place_options
@click.option("--roles", is_flag=True, help="Also make the group roles leasetop_viewer, _operator and _worker.")
@click.option("--journal", is_flag=True, help="Make only leasetop_journal: the trace of acts on queues of others.")
@click.option("--print", "show", is_flag=True, help="Print the SQL instead of applying it.")
def init(place: Place, roles: bool, journal: bool, show: bool) -> None:
    """Make the home table, its history and the watchers' table, where they are missing."""
    from leasetop import statements

    if journal and roles:
        raise click.UsageError("give --journal or --roles, not both")
    if show and journal:
        click.echo(statements.text("journal"), nl=False)
        return
    if show:
        click.echo(statements.text("schema") + (statements.text("roles") if roles else ""), nl=False)
        return
    import psycopg

    from leasetop import schema
    from leasetop.database import connect, in_words

    settled = _settle(place)
    with connect(settled.dsn, "leasetop init") as connection:
        try:
            row = connection.execute("SELECT current_database()::text").fetchone()
            why = settled.why_read_only(_titled(row[0] if row else "", connection.info.host))
            if why:
                raise LeasetopError(f"init writes, and {why}")
            if journal:
                connection.execute(statements.text("journal").encode())
                click.echo("leasetop_journal: there; acts on others' queues go to it, where the role may INSERT")
                return
            new = schema.apply(connection)
            if roles:
                schema.apply_roles(connection)
        except psycopg.Error as error:
            raise in_words(error) from error
    click.echo("payment_jobs: made" if new else "payment_jobs: there already, nothing was lost")
    if roles:
        click.echo("leasetop_viewer, leasetop_operator, leasetop_worker: grant them to your login roles")


@main.command()
@json_option
@place_options
def queues(place: Place, as_json: bool) -> None:
    """List the queues of a database: which library's they are, how far that is proven, and what is in them.

    verified-live: its real engine ran in leasetop's tests. verified-schema: its tables only. read-only: shown, not
    acted on. own: your table, understood by its columns.
    """
    from leasetop import report
    from leasetop.finding import survey
    from leasetop.queue import Queue

    async def ask() -> None:
        async with _opened(_settle(place)) as database:
            found = await survey(database)
            for profile in found.profiles:
                try:
                    snapshot = await Queue(database, profile).snapshot(limit=1)
                    click.echo(
                        report.queue_json(profile, snapshot) if as_json else report.queue_text(profile, snapshot)
                    )
                except LeasetopError as error:
                    click.echo(f"{profile.title}: cannot be read: {error}", err=True)
            for trouble in found.troubles:
                click.echo(f"note: {trouble}", err=True)
            if not found.profiles:
                raise LeasetopError("no queue is here that leasetop knows; a table of your own: leasetop --table NAME")

    _run(ask())


@main.command()
@json_option
@target_options
def doctor(target: Target, as_json: bool) -> None:
    """Look a queue over: privileges, indexes, row security, watchers, rows that should not be there. Changes nothing.

    Exits with 1 when something is bad.
    """
    from leasetop import doctor, text

    async def ask(queue: "Queue") -> bool:
        found = await doctor.examine(queue)
        for one in found:
            if as_json:
                click.echo(json.dumps({"grade": str(one.grade), "what": one.what, "said": one.said}))
            else:
                click.echo(f"{one.grade:<5} {text.fit(text.safe(one.what), 24)} {text.safe(one.said)}")
        return all(one.grade is not doctor.Grade.BAD for one in found)

    if not _run(_with_queue(target, ask)):
        sys.exit(1)


@main.command()
@json_option
@target_options
def status(target: Target, as_json: bool) -> None:
    """One screenful: jobs by state, who holds leases, is a watcher alive."""
    from leasetop import report

    async def ask(queue: "Queue") -> None:
        snapshot = await queue.snapshot(limit=1, owners=10_000)
        click.echo(json.dumps(report.status_json(snapshot)) if as_json else report.status_text(snapshot))

    _run(_with_queue(target, ask))


@main.command(name="list")
@click.option("--state", help="pending, scheduled, processing, stuck, failed, completed, cancelled or other.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=500, show_default=True)
@json_option
@target_options
def list_(target: Target, state: str | None, limit: int, as_json: bool) -> None:
    """List jobs, the most urgent state first. --json: one object a line."""
    from leasetop import report
    from leasetop.model import State

    if state is not None and state not in set(State):
        raise click.BadParameter(f"'{state}' is none of {', '.join(State)}", param_hint="--state")
    chosen = State(state) if state else None

    async def ask(queue: "Queue") -> None:
        jobs, clock = await queue.list_jobs(chosen, limit)
        if as_json:
            for job in jobs:
                click.echo(json.dumps(report.job_json(job, clock.at)))
        else:
            click.echo(report.jobs_text(jobs, clock.at))
        if len(jobs) == limit:
            click.echo(f"the first {limit}: there may be more (--limit)", err=True)

    _run(_with_queue(target, ask))


@main.command()
@operators_policy_option
@click.option("--dry-run", is_flag=True, help="Show which leases would be ended, and change nothing.")
@sure_option
@json_option
@target_options
def sweep(target: Target, policy: str | None, dry_run: bool, sure: bool, as_json: bool) -> None:
    """End all expired leases, once."""
    from leasetop import report, text, whoami

    chosen = _settle(target.place, policy=policy).settings.config.on_expiry

    async def preview(queue: "Queue") -> None:
        from leasetop.model import State

        stuck, clock = await queue.list_jobs(State.STUCK, 100_000)
        expired = [job for job in stuck if job.reason == "expired"]
        if as_json:
            for job in expired:
                click.echo(json.dumps(report.job_json(job, clock.at)))
            return
        if expired:
            click.echo(report.jobs_text(expired, clock.at))
        click.echo(f"{text.plural(len(expired), 'expired lease')} would be swept ({chosen}); nothing was changed")

    async def act(queue: "Queue") -> None:
        unproven = [queue.profile.unproven("sweep", job) for job in await queue.expired(1)]
        if any(unproven) and not sure:
            raise LeasetopError(
                f"{queue.profile.title}: look at these leases with --dry-run, be sure of each {unproven[0]}; "
                "then say --sure"
            )
        swept = await queue.sweep(chosen, whoami.operator())
        if as_json:
            for one in swept:
                click.echo(json.dumps(report.swept_json(one)))
        else:
            click.echo(report.swept_words(swept))
        if not swept and (left := await queue.expired()):
            click.echo(f"{text.plural(len(left), 'expired lease')} left: locked by others, or not this role's to write")

    _run(_with_queue(target, preview if dry_run else act))


def _confirmed(queue: "Queue", jobs: list["Job"], given: int) -> bool:
    """Asks; where nothing in the database proves that the owners are dead, for more than a y."""
    if not any(queue.profile.unproven("requeue", job) for job in jobs):
        return click.confirm(f"Requeue {len(jobs)} of {given}?", err=True)
    wanted = jobs[0].id if len(jobs) == 1 else str(len(jobs))
    what = "its id" if len(jobs) == 1 else "their number"
    asked = f"Nothing in the database proves that the owner is dead. To requeue {wanted} all the same, type {what}"
    return bool(click.prompt(asked, default="", show_default=False, err=True).strip() == wanted)


async def _requeued(queue: "Queue", job: "Job", reason: str, sure: bool) -> tuple[bool, str]:
    """Whether one job was requeued, and the words: that one is refused must not keep the others."""
    from leasetop import text, whoami

    if not sure and queue.profile.unproven("requeue", job):
        name = text.safe(job.id)
        return False, f"job {name}: be sure {queue.profile.unproven('requeue', job)}; then say --sure"
    try:
        outcome = await queue.requeue(job, whoami.operator(), reason)
    except ReadOnly:
        # The others would be refused as well.
        raise
    except Refused as error:
        return False, f"job {text.safe(job.id)}: {error}"
    return outcome.done, outcome.words


@main.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, help="Why: goes to the history.")
@click.option("--yes", is_flag=True, help="Do not ask. Required where there is no terminal.")
@sure_option
@json_option
@target_options
def requeue(ids: tuple[str, ...], target: Target, reason: str, yes: bool, sure: bool, as_json: bool) -> None:
    """Return stuck or failed jobs to Pending, guarded by what is shown. A live lease is refused.

    Exits with 1 when any of them was refused.
    """
    from leasetop import report, text

    if not reason.strip():
        raise click.BadParameter("must not be empty", param_hint="--reason")
    if not yes and not _is_terminal(sys.stdin):
        raise click.UsageError("there is no terminal to ask on: say --yes")

    async def act(queue: "Queue") -> bool:
        found = await queue.find_jobs(list(dict.fromkeys(ids)))
        jobs = [job for job in found.values() if job is not None]
        if jobs and not yes:
            _, clock = await queue.list_jobs(None, 1)
            click.echo(report.jobs_text(jobs, clock.at))
            window = _settle(target.place).settings.config.idempotency_window
            if caution := report.payment_caution(jobs, clock.at, window):
                click.echo(caution, err=True)
            if not _confirmed(queue, jobs, len(found)):
                click.echo("nothing was changed", err=True)
                return False
        well = True
        for given, job in found.items():
            if job is None:
                done, words = False, f"job {text.safe(given)}: there is none"
            else:
                done, words = await _requeued(queue, job, reason.strip(), sure or not yes)
            well = well and done
            if as_json:
                click.echo(json.dumps({"id": given, "requeued": done, "message": words}))
            else:
                click.echo(words, err=not done)
        return well

    if not _run(_with_queue(target, act)):
        sys.exit(1)


@main.command()
@click.option("--key", "keys", multiple=True, help="Idempotency key; once for each payment. Default: one random key.")
@click.option("--kind", default="charge", show_default=True)
@click.option("--amount", required=True, help="Exact, such as 12.30.")
@click.option("--currency", required=True, help="ISO 4217, such as EUR.")
@click.option("--payload", default="{}", show_default=True, help="JSON for the handler.")
@click.option("--max-attempts", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--delay", type=click.FloatRange(0, 1e9), default=0.0, metavar="SECONDS", help="Not before so long.")
@json_option
@target_options
def enqueue(
    target: Target,
    keys: tuple[str, ...],
    kind: str,
    amount: str,
    currency: str,
    payload: str,
    max_attempts: int,
    delay: float,
    as_json: bool,
) -> None:
    """Put payments into the home table. A key that is there already is refused: no payment twice."""
    import uuid

    try:
        exact = Decimal(amount)
        if not exact.is_finite() or exact <= 0:
            raise InvalidOperation
    except InvalidOperation:
        raise click.BadParameter(f"'{amount}' is no amount above zero", param_hint="--amount") from None
    if len(currency) != 3 or not currency.isascii() or not currency.isupper():
        raise click.BadParameter(f"'{currency}' is no ISO 4217 code such as EUR", param_hint="--currency")
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"is no JSON: {error}", param_hint="--payload") from None
    if math.isnan(delay):
        raise click.BadParameter("is no number of seconds", param_hint="--delay")
    chosen = keys or (str(uuid.uuid4()),)

    async def act(queue: "Queue") -> bool:
        made = await queue.enqueue(
            {
                "kind": kind,
                "idempotency_key": key,
                "amount": exact,
                "currency": currency,
                "payload": content,
                "max_attempts": max_attempts,
                "delay": timedelta(seconds=delay),
            }
            for key in chosen
        )
        for key, number in zip(chosen, made, strict=True):
            if as_json:
                click.echo(json.dumps({"id": number, "idempotency_key": key, "enqueued": number is not None}))
            elif number is None:
                click.echo(f"{key}: refused, a payment with this key is in the queue already", err=True)
            else:
                click.echo(f"job {number}: enqueued with key {key}")
        return None not in made

    if not _run(_with_queue(target, act)):
        sys.exit(1)


@main.command()
@dsn_options
@seconds_option("--interval", 30.0, "How often to sweep.")
@policy_option
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True, help="Leases a transaction.")
@json_option
def watch(dsn: str | None, interval: timedelta, policy: str, batch: int, as_json: bool) -> None:
    """The watcher: sweeps expired leases until SIGTERM; survives restarts of the database."""
    from leasetop import logs
    from leasetop.model import Policy
    from leasetop.watcher import Watcher

    _must_write()
    watcher = Watcher(dsn, interval=interval, policy=Policy(policy), batch=batch)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watcher.stop())
    logs.to_stderr(as_json)
    watcher.run()


@main.command()
@dsn_options
@click.option("--handler", metavar="MODULE:FUNCTION", help="What does the work. Default: the pretend payment provider.")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=4, show_default=True, help="Jobs at once.")
@click.option("--batch", type=click.IntRange(1, 1000), default=1, show_default=True, help="The most jobs of one claim.")
@seconds_option("--ttl", 30.0, "How long a lease lasts without a heartbeat.")
@seconds_option("--heartbeat", None, "How often leases are renewed. Default: a third of the TTL.")
@seconds_option("--drain", 30.0, "How long SIGTERM lets running jobs finish before the rest is released.")
@policy_option
@click.option("--name", default="worker", show_default=True, help="The first part of the owner's name.")
@click.option("--pooled", is_flag=True, help="A transaction pooler (PgBouncer) is in between.")
@json_option
def worker(dsn: str | None, handler: str | None, policy: str, as_json: bool, **options: Any) -> None:
    """One worker process: claims jobs, keeps their leases, completes them; SIGTERM finishes or releases them."""
    import logging

    from leasetop import handlers, logs
    from leasetop.model import Policy
    from leasetop.worker import Settings, Worker

    _must_write()
    settings = Settings(policy=Policy(policy), **options)
    if handler is None:
        from leasetop.demo.psp import Provider

        provider = Provider(dsn)
        made = Worker(dsn, provider.pay, settings)
    else:
        made = Worker(dsn, handlers.load(handler), settings)
    made.stop_on_signals()
    logs.to_stderr(as_json)
    if handler is None:
        provider.prepare()
        logging.getLogger("leasetop.worker").warning(
            "no --handler: jobs are completed at the pretend payment provider, and no money moves",
            extra={"event": "pretend"},
        )
    made.run()


@main.command()
@dsn_options
@click.option("--table", metavar="TABLE", help='The table, as SQL writes it: pay.jobs, \'"Pay"."Jobs"\'.')
@click.option(
    "--trust",
    "trusted",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="You have read this profile: use it without showing it first.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="What cannot be guessed: owner=COLUMN, lease='locked_at + 4 hours', processing=1, time_zone=UTC, ...",
)
@click.option("--output", type=click.Path(path_type=Path), help="Where to write it. Default: standard output.")
@click.option("--yes", is_flag=True, help="Write without asking.")
def profile(
    dsn: str | None,
    table: str | None,
    trusted: Path | None,
    settings: tuple[str, ...],
    output: Path | None,
    yes: bool,
) -> None:
    """Look at a table of your own, guess what its columns mean, and write that down as a profile."""
    from leasetop import guess, profile, report, trust
    from leasetop.database import Database
    from leasetop.model import View
    from leasetop.queue import Queue

    if trusted is not None:
        profile.load(trusted)
        trust.trust(trusted)
        click.echo(f"{trusted}: trusted as it is now", err=True)
        return
    if table is None:
        raise click.UsageError("which table? Give --table")
    told = _pairs(settings, "--set")

    async def work() -> str:
        database = Database(dsn)
        try:
            meaning = await guess.guess(database, table, told)
            document = meaning.document()
            queue = Queue(database, profile.read(document, table))
            snapshot = await queue.snapshot(View.ALL, limit=8)
        finally:
            await database.close()
        click.echo(f"{document['title']}: what the columns are taken for\n", err=True)
        for field, expression in document["columns"].items():
            click.echo(f"  {field:<16} {expression}", err=True)
        click.echo("\nhow its rows look then\n", err=True)
        click.echo(report.jobs_text(snapshot.jobs, snapshot.now), err=True)
        counts = ", ".join(f"{tally.count} {state}" for state, tally in snapshot.tallies.items() if tally.count)
        click.echo(f"\n{counts or 'no rows'}", err=True)
        for note in meaning.notes:
            click.echo(f"note: {note}", err=True)
        return profile.written(document)

    written = _run(work())
    if output is None:
        click.echo(written, nl=False)
        return
    if output.exists() and not yes:
        if not _is_terminal(sys.stdin):
            raise click.UsageError(f"{output} exists: say --yes to replace it")
        click.confirm(f"Replace {output}?", abort=True, err=True)
    try:
        output.write_text(written, encoding="utf-8")
    except OSError as error:
        raise LeasetopError(f"{output} cannot be written: {error.strerror}") from None
    trust.trust(output)
    click.echo(f"{output}: written; look at it, then: leasetop --profile {output}", err=True)


@main.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where the demo's PostgreSQL lives.")
@click.option("--fresh", is_flag=True, help="Start anew: drops the demo's data of earlier runs.")
@click.option("--workers", type=click.IntRange(0, 20), default=3, show_default=True, help="Worker processes to start.")
@seconds_option("--interval", 1.0, "How often the screen is refreshed.")
@policy_option
@click.option("--race", is_flag=True, help="Show the race: reading-then-writing against one conditional UPDATE.")
@click.option("--print-dsn", is_flag=True, help="Print the demo's DSN, for psql, and do nothing.")
def demo(
    directory: Path | None, fresh: bool, workers: int, interval: timedelta, policy: str, race: bool, print_dsn: bool
) -> None:
    """A live queue on an embedded PostgreSQL, with real worker processes to crash and freeze."""
    from leasetop.demo import live
    from leasetop.model import Policy

    if print_dsn:
        click.echo(live.dsn(directory))
        return
    _need_terminal("leasetop demo in a terminal")
    click.echo(f"leasetop: starting the demo's PostgreSQL; to look on: psql '{live.dsn(directory)}'", err=True)
    live.run(directory, fresh=fresh, workers=workers, interval=interval, policy=Policy(policy), race=race)


@main.command(name="config")
@click.option("--path", "ask", flag_value="path", help="Print where the file is, or would be.")
@click.option("--init", "ask", flag_value="init", help="Write a file that has every key at its default.")
@click.option(
    "--show", "ask", flag_value="show", default="show", help="Print what counts, and where it comes from: the default."
)
@click.option("--yes", is_flag=True, help="With --init: replace the file that is there.")
@click.pass_context
def config_(ctx: click.Context, ask: str, yes: bool) -> None:
    """Your settings: flags count before the environment, that before the file, that before the defaults.

    The environment has LEASETOP_CONFIG (the file), LEASETOP_DSN, LEASETOP_INTERVAL and LEASETOP_READ_ONLY. Flags to
    --show stand before the command: leasetop --interval 5 config.
    """
    from leasetop import config, text

    if ask == "path":
        click.echo(config.path())
        return
    if ask == "init":
        click.echo(f"{config.init(replace_it=yes)}: written; every key in it is commented out", err=True)
        return
    flags = ctx.find_root().params
    settled = _settle(Place(flags["dsn"], flags["env"], flags["read_only"]), flags["interval"], flags["policy"])
    file = config.path()
    click.echo(f"# file: {text.safe(file)}{'' if file.exists() else ' (missing)'}")
    click.echo(f"# dsn: {_DSN_WORDS.get(ctx.meta[_DSN_FROM], text.safe(ctx.meta[_DSN_FROM]))}")
    click.echo(config.shown(settled.settings.config, settled.settings.sources), nl=False)


_DSN_WORDS = {
    None: "not given; libpq's environment and defaults count",
    "--dsn": "not shown  # flag --dsn",
    "LEASETOP_DSN": "not shown  # environment LEASETOP_DSN",
}

_INSTALL = {
    "bash": """put eval "$(leasetop completion bash)" into ~/.bashrc""",
    "zsh": """put eval "$(leasetop completion zsh)" into ~/.zshrc, after compinit""",
    "fish": "leasetop completion fish > ~/.config/fish/completions/leasetop.fish",
}


@main.command()
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell, and how to install it."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "leasetop", "_LEASETOP_COMPLETE").source().rstrip())
    click.echo(f"# To install it: {_INSTALL[shell]}")


def _is_terminal(stream: IO[str] | None) -> bool:
    # None: it was closed by whoever started us.
    return stream is not None and stream.isatty()


def _need_terminal(instead: str) -> None:
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        _fail(f"the screen needs a terminal, and this is none; use {instead}", 1)


def _must_write() -> None:
    # Workers and watchers are told by their own command line, not by an operator's settings.
    if click.get_current_context().find_root().params.get("read_only"):
        raise click.UsageError("this command writes: it cannot be --read-only")


async def _with_queue(target: Target, use: "Callable[[Queue], Coroutine[Any, Any, T]]") -> T:
    async with _opened(_settle(target.place)) as database:
        return await use(await _find(database, target))


@asynccontextmanager
async def _opened(settled: Settled) -> AsyncIterator["Database"]:
    """The database, read-only where flag, environment or file want it so."""
    from leasetop.database import Database

    title, database = None, Database(settled.dsn, read_only=settled.is_read_only)
    try:
        if settled.asks_title and not settled.is_read_only:
            # On the connection that would write.
            async with database.acting() as connection:
                row = await (await connection.execute("SELECT current_database()::text")).fetchone()
                title = _titled(row[0] if row else "", connection.info.host)
        why = click.get_current_context().meta[_READ_ONLY] = settled.why_read_only(title)
        if why and not settled.is_read_only:
            await database.close()
            database = Database(settled.dsn, read_only=True)
        yield database
    finally:
        await database.close()


def _titled(database: str, host: str) -> str:
    """`database@host` as the header shows it; a unix socket has a directory for a host."""
    return f"{database}@{'local' if host.startswith('/') or not host else host}"


async def _find(database: "Database", target: Target) -> "Queue":
    from leasetop.finding import find

    if target.profile is not None:
        _look_first(target.profile)
    return await find(
        database, table=target.table, profile=target.profile, name=target.queue, params=dict(target.params)
    )


def _look_first(profile: Path) -> None:
    """A profile of the operator's own is shown before its first use."""
    from leasetop import text, trust
    from leasetop.profile import load

    load(profile)
    if trust.is_trusted(profile):
        return
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise LeasetopError(
            f"{profile} is SQL that would be run, and nobody has looked at it here as it is now: "
            f"read it, then say: leasetop profile --trust {profile}"
        )
    click.echo(text.safe_lines(profile.read_text(encoding="utf-8"), 100_000), err=True)
    click.confirm(f"{profile}: this SQL will be run. Is it as you want it?", abort=True, err=True)
    trust.trust(profile)


async def _screen(target: Target, settled: Settled) -> None:
    from leasetop import whoami
    from leasetop.finding import SeveralQueues
    from leasetop.queue import Queue
    from leasetop.tui.app import LeasetopApp

    def make_fleet() -> "Fleet":
        from leasetop.demo.fleet import Fleet

        return Fleet(settled.dsn or "", policy=config.on_expiry)

    config = settled.settings.config
    async with _opened(settled) as database:
        survey = None
        try:
            queue = await _find(database, target)
        except SeveralQueues as several:
            survey = several.found
            queue = Queue(database, survey.profiles[0])
        app = LeasetopApp(
            queue,
            actor=whoami.operator(),
            interval=timedelta(seconds=config.interval_s),
            policy=config.on_expiry,
            make_fleet=None if click.get_current_context().meta[_READ_ONLY] else make_fleet,
            survey=survey,
            config=config,
            read_only=click.get_current_context().meta[_READ_ONLY],
        )
        try:
            await app.run_async()
        finally:
            if app.fleet is not None:
                await app.fleet.close()
    if app.return_code:
        sys.exit(app.return_code)


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)
