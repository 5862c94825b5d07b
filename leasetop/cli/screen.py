"""The screen over a queue of yours, and over the demo's."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasetop.cli.errors import READ_ONLY
from leasetop.cli.opening import find_queue, need_terminal, opened
from leasetop.cli.options import Settled, Target, policy_option, seconds_option

if TYPE_CHECKING:
    from leasetop.demo.fleet import Fleet


async def show_screen(target: Target, settled: Settled) -> None:
    from leasetop import whoami
    from leasetop.finding import SeveralQueues
    from leasetop.queue import Queue
    from leasetop.tui.app import LeasetopApp

    def make_fleet() -> "Fleet":
        from leasetop.demo.fleet import Fleet

        return Fleet(settled.dsn or "", policy=config.on_expiry)

    config = settled.settings.config
    async with opened(settled) as database:
        survey = None
        try:
            queue = await find_queue(database, target)
        except SeveralQueues as several:
            survey = several.found
            queue = Queue(database, survey.profiles[0])
        app = LeasetopApp(
            queue,
            actor=whoami.operator(),
            interval=timedelta(seconds=config.interval_s),
            policy=config.on_expiry,
            make_fleet=None if click.get_current_context().meta[READ_ONLY] else make_fleet,
            survey=survey,
            config=config,
            read_only=click.get_current_context().meta[READ_ONLY],
        )
        try:
            await app.run_async()
        finally:
            if app.fleet is not None:
                await app.fleet.close()
    if app.return_code:
        sys.exit(app.return_code)


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where the demo's PostgreSQL lives.")
@click.option("--fresh", is_flag=True, help="Start anew: drops the demo's data of earlier runs.")
@click.option("--workers", type=click.IntRange(0, 20), default=3, show_default=True, help="Worker processes to start.")
@seconds_option("--interval", None, "How often the screen is refreshed.  [default: as for leasetop itself]")
@policy_option
@click.option("--race", is_flag=True, help="Show the race: reading-then-writing against one conditional UPDATE.")
@click.option("--print-dsn", is_flag=True, help="Print the demo's DSN, for psql, and do nothing.")
def demo(
    directory: Path | None,
    fresh: bool,
    workers: int,
    interval: timedelta | None,
    policy: str,
    race: bool,
    print_dsn: bool,
) -> None:
    """A live queue on an embedded PostgreSQL, with real worker processes to crash and freeze."""
    from leasetop import config
    from leasetop.demo import live
    from leasetop.model import Policy

    if print_dsn:
        click.echo(live.dsn(directory))
        return
    need_terminal("leasetop demo in a terminal")
    # Its looks are those of the operator's screen; what it does is its own.
    looks = config.settings(interval_s=interval.total_seconds() if interval else None).config
    click.echo(f"leasetop: starting the demo's PostgreSQL; to look on: psql '{live.dsn(directory)}'", err=True)
    live.run(directory, fresh=fresh, workers=workers, policy=Policy(policy), race=race, config=looks)
