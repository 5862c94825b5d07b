"""Commands that run until they are told to stop: watch, worker."""

import signal
from datetime import timedelta
from typing import Any

import click

from leasetop.cli.opening import must_write
from leasetop.cli.options import dsn_options, json_option, policy_option, seconds_option


@click.command()
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

    must_write()
    watcher = Watcher(dsn, interval=interval, policy=Policy(policy), batch=batch)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watcher.stop())
    logs.to_stderr(as_json)
    watcher.run()


@click.command()
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

    must_write()
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
