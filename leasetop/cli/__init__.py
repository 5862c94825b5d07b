"""The command line: parses, hands on, prints, and chooses the exit status.

0: done. 1: refused or failed, for a reason that is printed. 2: the command itself is wrong. Everything heavy is
imported by the command that needs it, so that `leasetop --version` is instant and a worker loads no screen.
"""

from datetime import timedelta
from importlib.metadata import version

import click

from leasetop.cli import acts, processes, reads, setup
from leasetop.cli.errors import Commands
from leasetop.cli.opening import need_terminal, run
from leasetop.cli.options import Target, operators_policy_option, seconds_option, settle, target_options
from leasetop.cli.screen import demo, show_screen

_EPILOG = """
\b
Examples:
  leasetop --dsn postgresql://ops@db1/payments
  leasetop list --state stuck --json
  leasetop requeue 8841 8842 --reason 'pod died'
  leasetop --table pay.jobs
  leasetop demo

\b
Environment:
  LEASETOP_DSN        where to go without --dsn; then PGHOST, PGSERVICE, ... count
  LEASETOP_INTERVAL   seconds from one refresh to the next
  LEASETOP_READ_ONLY  1: the database itself refuses writes
  LEASETOP_CONFIG     the file of settings, in the place of the usual one
  NO_COLOR            no colours

\b
Files:
  The file of settings: leasetop config --path says where it is, --init writes it.
  journal.jsonl in the state directory: acts on queues that keep no trace themselves.

\b
Exit status:
  0  done
  1  refused or failed; one line on standard error says why
  2  the command itself is wrong

In the screen ? shows the keys. Each command has its own --help.
"""


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
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
        need_terminal("leasetop status")
        run(show_screen(target, settle(target.place, interval, policy)))


main.add("Look", reads.status, reads.list_, reads.queues, reads.doctor)
main.add("Act", acts.requeue, acts.sweep, acts.enqueue)
main.add("Prepare", setup.init, setup.profile, setup.config_, setup.completion)
main.add("Run", processes.watch, processes.worker, demo)
