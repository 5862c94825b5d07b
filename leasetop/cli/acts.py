"""Commands that change jobs: sweep, requeue, enqueue."""

import json
import math
import sys
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import click

from leasetop.cli.opening import is_terminal, run, say_notes, width, with_queue
from leasetop.cli.options import Target, json_option, operators_policy_option, settle, sure_option, target_options
from leasetop.errors import LeasetopError, ReadOnly, Refused

if TYPE_CHECKING:
    from leasetop.model import Job
    from leasetop.queue import Queue


@click.command()
@operators_policy_option
@click.option("--dry-run", is_flag=True, help="Show which leases would be ended, and change nothing.")
@sure_option
@json_option
@target_options
def sweep(target: Target, policy: str | None, dry_run: bool, sure: bool, as_json: bool) -> None:
    """End all expired leases, once."""
    from leasetop import report, text, whoami
    from leasetop.model import Reason, State

    chosen = settle(target.place, policy=policy).settings.config.on_expiry

    async def preview(queue: "Queue") -> None:
        stuck, clock = await queue.list_jobs(State.STUCK, 100_000)
        expired = [job for job in stuck if job.reason == "expired"]
        say_notes(queue)
        if as_json:
            for job in expired:
                click.echo(json.dumps(report.job_json(job, clock.at)))
            return
        if expired:
            click.echo(report.jobs_text(expired, clock.at, width(sys.stdout)))
        click.echo(f"{text.plural(len(expired), 'expired lease')} would be swept ({chosen}); nothing was changed")

    async def act(queue: "Queue") -> None:
        unproven = [queue.profile.unproven("sweep", job) for job in await queue.expired(1)]
        if any(unproven) and not sure:
            raise LeasetopError(
                f"{queue.profile.title}: look at these leases with --dry-run, be sure of each {unproven[0]}; "
                "then say --sure"
            )
        swept = await queue.sweep(chosen, whoami.operator())
        left = [] if swept else await queue.expired()
        if as_json:
            for one in swept:
                click.echo(json.dumps(report.swept_json(one)))
        elif not left:
            click.echo(report.swept_words(swept))
        if left:
            click.echo(
                f"nothing was changed: {text.plural(len(left), 'expired lease')} left, locked by others, not this "
                "role's to write, or held back by a trigger",
                err=as_json,
            )
        if aged := [job for job in (await queue.list_jobs(State.STUCK, 1_000))[0] if job.reason is Reason.AGE]:
            names = ", ".join(text.safe(job.id, 30) for job in aged[:5]) + (" ..." if len(aged) > 5 else "")
            click.echo(
                f"note: no sweep takes {text.plural(len(aged), 'job')} of which nothing proves that the worker is "
                f"dead: {names}",
                err=True,
            )

    run(with_queue(target, preview if dry_run else act))


def _confirmed(queue: "Queue", jobs: list["Job"], given: int) -> bool:
    """Asks; where nothing in the database proves that the owners are dead, for more than a y."""
    doubts = dict.fromkeys(filter(None, (queue.profile.unproven("requeue", job) for job in jobs)))
    if not doubts:
        return click.confirm(f"Requeue {len(jobs)} of {given}?", err=True)
    wanted = jobs[0].id if len(jobs) == 1 else str(len(jobs))
    what = "its id" if len(jobs) == 1 else "their number"
    asked = f"Nothing proves it: be sure {', and '.join(doubts)}. To requeue {wanted} all the same, type {what}"
    return bool(click.prompt(asked, default="", show_default=False, err=True).strip() == wanted)


async def _requeued(queue: "Queue", job: "Job", reason: str, sure: bool) -> tuple[bool, str]:
    """Whether one job was requeued, and the words: that one is refused must not keep the others."""
    from leasetop import text, whoami
    from leasetop.model import State

    if not sure and job.state in (State.STUCK, State.FAILED) and queue.profile.unproven("requeue", job):
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


@click.command()
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
    if not yes and not is_terminal(sys.stdin):
        raise click.UsageError("there is no terminal to ask on: say --yes")

    async def act(queue: "Queue") -> bool:
        found = await queue.find_jobs(list(dict.fromkeys(ids)))
        jobs = [job for job in found.values() if job is not None]
        if jobs and not yes:
            _, clock = await queue.list_jobs(None, 1)
            click.echo(report.jobs_text(jobs, clock.at, width(sys.stdout)))
            window = settle(target.place).settings.config.idempotency_window
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

    if not run(with_queue(target, act)):
        sys.exit(1)


@click.command()
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

    if not run(with_queue(target, act)):
        sys.exit(1)
