"""Commands that look and change nothing: queues, doctor, status, list."""

import json
import sys
from typing import TYPE_CHECKING

import click

from leasetop.cli.opening import opened, run, say_notes, width, with_queue
from leasetop.cli.options import Place, Target, json_option, place_options, settle, target_options
from leasetop.errors import LeasetopError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from leasetop.queue import Queue


@click.command()
@json_option
@place_options
def queues(place: Place, as_json: bool) -> None:
    """List the queues of a database: which library's they are, how far that is proven, and what is in them.

    verified-live: its real engine ran in leasetop's tests. verified-schema: its tables only. read-only: shown, not
    acted on. own: your table, understood by its columns.
    """
    from leasetop import report, text
    from leasetop.finding import survey
    from leasetop.queue import Queue

    async def ask() -> None:
        async with opened(settle(place)) as database:
            found = await survey(database)
            for profile in found.profiles:
                try:
                    snapshot = await Queue(database, profile).snapshot(limit=1)
                    click.echo(
                        report.queue_json(profile, snapshot) if as_json else report.queue_text(profile, snapshot)
                    )
                except LeasetopError as error:
                    click.echo(f"{text.safe(profile.title)}: cannot be read: {error}", err=True)
            for trouble in found.troubles:
                click.echo(f"note: {trouble}", err=True)
            if not found.profiles:
                raise LeasetopError("no queue is here that leasetop knows; a table of your own: leasetop --table NAME")

    run(ask())


@click.command()
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

    if not run(with_queue(target, ask)):
        sys.exit(1)


@click.command()
@json_option
@target_options
def status(target: Target, as_json: bool) -> None:
    """One screenful: jobs by state, who holds leases, is a watcher alive."""
    from leasetop import report

    async def ask(queue: "Queue") -> None:
        snapshot = await queue.snapshot(limit=1, owners=10_000)
        say_notes(queue)
        click.echo(json.dumps(report.status_json(snapshot)) if as_json else report.status_text(snapshot))

    run(with_queue(target, ask))


def _state_names(ctx: click.Context, parameter: click.Parameter, begun: str) -> "list[CompletionItem[str]]":
    from click.shell_completion import CompletionItem

    from leasetop.model import State

    return [CompletionItem(state) for state in State if state.startswith(begun.lower())]


@click.command(name="list")
@click.option(
    "--state",
    shell_complete=_state_names,
    help="pending, scheduled, processing, stuck, failed, completed, cancelled or other.",
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=500, show_default=True)
@json_option
@target_options
def list_(target: Target, state: str | None, limit: int, as_json: bool) -> None:
    """List jobs, the most urgent state first. --json: one object a line."""
    from leasetop import report
    from leasetop.model import State

    state = state.lower() if state is not None else None
    if state is not None and state not in set(State):
        raise click.BadParameter(f"'{state}' is none of {', '.join(State)}", param_hint="--state")
    chosen = State(state) if state else None

    async def ask(queue: "Queue") -> None:
        jobs, clock = await queue.list_jobs(chosen, limit)
        say_notes(queue)
        if as_json:
            for job in jobs:
                click.echo(json.dumps(report.job_json(job, clock.at)))
        else:
            click.echo(report.jobs_text(jobs, clock.at, width(sys.stdout)))
        if len(jobs) == limit:
            click.echo(f"the first {limit}: there may be more (--limit)", err=True)

    run(with_queue(target, ask))
