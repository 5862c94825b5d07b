"""The command line: parses, hands on, prints, and chooses the exit status.

0: done. 1: refused or failed, for a reason that is printed. 2: the command itself is wrong. Everything heavy is
imported by the command that needs it, so that `leasetop --version` is instant and a worker loads no screen.
"""

import functools
import json
import math
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from leasetop.errors import CommandError, LeasetopError, Unreachable

if TYPE_CHECKING:
    from leasetop.database import Database
    from leasetop.demo.fleet import Fleet
    from leasetop.queue import Queue

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Errors(click.Group):
    """Turns an error for a person into one line on standard error and an exit status; never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            _fail(str(error), 2)
        except LeasetopError as error:
            hint = ""
            if isinstance(error, Unreachable) and _no_dsn(ctx):
                hint = "; no --dsn was given and libpq's defaults were tried. To look around: leasetop demo"
            _fail(f"{error}{hint}", 1)
        except UnicodeError:
            _fail("an argument is not valid UTF-8", 2)
        except OSError as error:
            # A pipe that was closed is click's; a full disk or a closed standard output is said here.
            if isinstance(error, BrokenPipeError):
                raise
            _fail(error.strerror or str(error), 1)


def _no_dsn(ctx: click.Context) -> bool:
    return "--dsn" not in " ".join(sys.argv) and ctx.find_root().params.get("dsn") is None


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


def _inherit(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
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


dsn_option = click.option(
    "--dsn",
    metavar="DSN",
    callback=_inherit,
    help="postgresql://user@host:port/database or key=value pairs; without it libpq's environment "
    "(PGHOST, PGSERVICE, PGPASSFILE, ...) and defaults.",
)


@dataclass(frozen=True)
class Target:
    """Which queue of which database."""

    dsn: str | None
    table: str | None
    profile: Path | None
    queue: str | None
    params: tuple[tuple[str, str], ...]


def target_options(command: Callable[..., T]) -> Callable[..., T]:
    """--dsn, --queue, --table, --profile and --param, which arrive as one `target`."""

    @functools.wraps(command)
    def with_target(
        *words: Any,
        dsn: str | None,
        table: str | None,
        profile: Path | None,
        queue: str | None,
        params: tuple[str, ...],
        **more: Any,
    ) -> T:
        if sum(one is not None for one in (table, profile, queue)) > 1:
            raise click.UsageError("give one of --queue, --table and --profile")
        pairs = tuple(_pairs(params, "--param").items())
        return command(*words, target=Target(dsn, table, profile, queue, pairs), **more)

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
    return dsn_option(queue(table(profile(param(with_target)))))


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not value or not name.strip():
            raise click.BadParameter(f"'{one}' is not of the form NAME=VALUE", param_hint=option)
        found[name.strip()] = value.strip()
    return found


json_option = click.option("--json", "as_json", is_flag=True, help="For programs.")
policy_option = click.option(
    "--on-expiry",
    "policy",
    type=click.Choice(["requeue", "park"]),
    default="requeue",
    show_default=True,
    help="What becomes of a job whose lease ran out: tried again, or parked for a person.",
)


def seconds_option(name: str, default: float | None, words: str) -> Callable[[F], F]:
    """An option in seconds that arrives as a timedelta."""
    return click.option(
        name, type=float, default=default, metavar="SECONDS", show_default=True, callback=_seconds, help=words
    )


@click.group(cls=_Errors, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("leasetop"), "--version", "-V", prog_name="leasetop")
@seconds_option("--interval", 1.0, "How often the screen is refreshed.")
@policy_option
@click.pass_context
@target_options
def main(ctx: click.Context, target: Target, interval: timedelta, policy: str) -> None:
    """See and mend PostgreSQL job queues that hand out work by lease.

    Without a command it opens the screen. To look around without a database of your own: leasetop demo.
    """
    if ctx.invoked_subcommand is None:
        _need_terminal("leasetop status")
        _run(_screen(target, interval, policy))


@main.command()
@dsn_option
@click.option("--roles", is_flag=True, help="Also make the group roles leasetop_viewer, _operator and _worker.")
@click.option("--journal", is_flag=True, help="Make only leasetop_journal: the trace of acts on queues of others.")
@click.option("--print", "show", is_flag=True, help="Print the SQL instead of applying it.")
def init(dsn: str | None, roles: bool, journal: bool, show: bool) -> None:
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

    with connect(dsn, "leasetop init") as connection:
        try:
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
@dsn_option
def queues(dsn: str | None, as_json: bool) -> None:
    """List the queues of a database: which library's they are, how far that is proven, and what is in them.

    verified-live: its real engine ran in leasetop's tests. verified-schema: its tables only. read-only: shown, not
    acted on. own: your table, understood by its columns.
    """
    from leasetop import report
    from leasetop.database import Database
    from leasetop.finding import survey
    from leasetop.queue import Queue

    async def ask() -> None:
        database = Database(dsn)
        try:
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
        finally:
            await database.close()

    _run(ask())


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
@policy_option
@click.option("--dry-run", is_flag=True, help="Show which leases would be ended, and change nothing.")
@json_option
@target_options
def sweep(target: Target, policy: str, dry_run: bool, as_json: bool) -> None:
    """End all expired leases, once."""
    from leasetop import report, text, whoami
    from leasetop.model import Policy

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
        click.echo(f"{text.plural(len(expired), 'expired lease')} would be swept ({policy}); nothing was changed")

    async def act(queue: "Queue") -> None:
        swept = await queue.sweep(Policy(policy), whoami.operator())
        if as_json:
            for one in swept:
                click.echo(json.dumps(report.swept_json(one)))
        else:
            click.echo(report.swept_words(swept))

    _run(_with_queue(target, preview if dry_run else act))


@main.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--reason", required=True, help="Why: goes to the history.")
@click.option("--yes", is_flag=True, help="Do not ask. Required where there is no terminal.")
@json_option
@target_options
def requeue(ids: tuple[str, ...], target: Target, reason: str, yes: bool, as_json: bool) -> None:
    """Return stuck or failed jobs to Pending, guarded by what is shown. A live lease is refused.

    Exits with 1 when any of them was refused.
    """
    from leasetop import report, whoami

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
            if not click.confirm(f"Requeue {len(jobs)} of {len(found)}?", err=True):
                click.echo("nothing was changed", err=True)
                return False
        well = True
        for given, job in found.items():
            if job is None:
                done, words = False, f"job {given}: there is none"
            else:
                outcome = await queue.requeue(job, whoami.operator(), reason.strip())
                done, words = outcome.done, outcome.words
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
@dsn_option
@seconds_option("--interval", 30.0, "How often to sweep.")
@policy_option
@click.option("--batch", type=click.IntRange(1, 10_000), default=500, show_default=True, help="Leases a transaction.")
@json_option
def watch(dsn: str | None, interval: timedelta, policy: str, batch: int, as_json: bool) -> None:
    """The watcher: sweeps expired leases until SIGTERM; survives restarts of the database."""
    from leasetop import logs
    from leasetop.model import Policy
    from leasetop.watcher import Watcher

    watcher = Watcher(dsn, interval=interval, policy=Policy(policy), batch=batch)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watcher.stop())
    logs.to_stderr(as_json)
    watcher.run()


@main.command()
@dsn_option
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
@dsn_option
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
    from leasetop import mapping, profile, report, trust
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
            guess = await mapping.guess(database, table, told)
            document = guess.document()
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
        for note in guess.notes:
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


def _is_terminal(stream: IO[str] | None) -> bool:
    # None: it was closed by whoever started us.
    return stream is not None and stream.isatty()


def _need_terminal(instead: str) -> None:
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        _fail(f"the screen needs a terminal, and this is none; use {instead}", 1)


async def _with_queue(target: Target, use: "Callable[[Queue], Coroutine[Any, Any, T]]") -> T:
    from leasetop.database import Database

    database = Database(target.dsn)
    try:
        return await use(await _find(database, target))
    finally:
        await database.close()


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


async def _screen(target: Target, interval: timedelta, policy: str) -> None:
    from leasetop import whoami
    from leasetop.database import Database
    from leasetop.finding import SeveralQueues
    from leasetop.model import Policy
    from leasetop.queue import Queue
    from leasetop.tui.app import LeasetopApp

    def make_fleet() -> "Fleet":
        from leasetop.demo.fleet import Fleet

        return Fleet(target.dsn or "", policy=Policy(policy))

    database = Database(target.dsn)
    try:
        survey = None
        try:
            queue = await _find(database, target)
        except SeveralQueues as several:
            survey = several.found
            queue = Queue(database, survey.profiles[0])
        app = LeasetopApp(
            queue,
            actor=whoami.operator(),
            interval=interval,
            policy=Policy(policy),
            make_fleet=make_fleet,
            survey=survey,
        )
        try:
            await app.run_async()
        finally:
            if app.fleet is not None:
                await app.fleet.close()
    finally:
        await database.close()
    if app.return_code:
        sys.exit(app.return_code)


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)
