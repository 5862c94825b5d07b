"""Commands that prepare: init, profile, config, completion."""

import sys
from pathlib import Path

import click

from leasetop.cli.errors import DSN_FROM
from leasetop.cli.opening import is_terminal, run, titled, width
from leasetop.cli.options import Place, dsn_options, pairs, place_options, settle
from leasetop.errors import LeasetopError


@click.command()
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

    settled = settle(place)
    with connect(settled.dsn, "leasetop init") as connection:
        try:
            row = connection.execute("SELECT current_database()::text").fetchone()
            why = settled.why_read_only(titled(row[0] if row else "", connection.info.host))
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


@click.command()
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
    """Look at a table of your own, guess what its columns mean, and write that down as a profile.

    --set takes, each with the column that it is: status, owner, lease_until, locked_at, heartbeat_at, attempts,
    max_attempts, error, stage, kind, created_at, run_after, finished_at, failed_at, done (a boolean),
    idempotency_key, payload, amount; NAME=none where the table has none.

    With the values of the status that mean it: pending, processing, stuck, completed, failed, cancelled.

    lease=COLUMN or lease='COLUMN + TIME-OUT'; workers=TABLE or workers=TABLE:COLUMN, where heartbeats are in a table of
    workers; time_zone=ZONE and epoch=seconds (or milliseconds), for instants that do not say it; ignore=COLUMN,...:
    these say nothing about a job.
    """
    from leasetop import guess, profile, report, text, trust
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
    told = pairs(settings, "--set")

    async def work() -> str:
        database = Database(dsn)
        try:
            meaning = await guess.guess(database, table, told)
            document = meaning.document()
            queue = Queue(database, profile.read(document, table))
            snapshot = await queue.snapshot(View.ALL, limit=8)
        finally:
            await database.close()
        click.echo(f"{text.safe(document['title'])}: what the columns are taken for\n", err=True)
        for field, expression in document["columns"].items():
            if field != "fence":
                said = meaning.lease_in_words() if field == "lease_until" else expression
                click.echo(f"  {field:<16} {text.safe(said)}", err=True)
        if "payload" in document:
            click.echo(f"  {'payload':<16} {text.safe(document['payload']['sql'])}", err=True)
        for state, values in meaning.states.items():
            click.echo(f"  {state:<16} status {', '.join(map(text.safe, values))}", err=True)
        click.echo("\nhow its rows look then\n", err=True)
        click.echo(report.jobs_text(snapshot.jobs, snapshot.now, width(sys.stderr)), err=True)
        counts = ", ".join(f"{tally.count} {state}" for state, tally in snapshot.tallies.items() if tally.count)
        click.echo(f"\n{counts or 'no rows'}", err=True)
        for note in meaning.notes:
            click.echo(f"note: {note}", err=True)
        return profile.written(document)

    written = run(work())
    if output is None:
        click.echo(written, nl=False)
        return
    if output.exists() and not yes:
        if not is_terminal(sys.stdin):
            raise click.UsageError(f"{output} exists: say --yes to replace it")
        click.confirm(f"Replace {output}?", abort=True, err=True)
    try:
        output.write_text(written, encoding="utf-8")
    except OSError as error:
        raise LeasetopError(f"{output} cannot be written: {error.strerror}") from None
    trust.trust(output)
    click.echo(f"{output}: written; look at it, then: leasetop --profile {output}", err=True)


@click.command(name="config")
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
    settled = settle(Place(flags["dsn"], flags["env"], flags["read_only"]), flags["interval"], flags["policy"])
    file = config.path()
    click.echo(f"# file: {text.safe(file)}{'' if file.exists() else ' (missing)'}")
    click.echo(f"# dsn: {_DSN_WORDS.get(ctx.meta[DSN_FROM], text.safe(ctx.meta[DSN_FROM]))}")
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


@click.command()
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell, and how to install it."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(
        kind(click.get_current_context().find_root().command, {}, "leasetop", "_LEASETOP_COMPLETE").source().rstrip()
    )
    click.echo(f"# To install it: {_INSTALL[shell]}")
