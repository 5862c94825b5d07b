"""The group of all commands: its help, and how any of them ends badly: one line on standard error, an exit status."""

import sys
from typing import Any, NoReturn

import click

from leasetop.errors import CommandError, DsnError, LeasetopError, ReadOnly, Unreachable

# In click's `meta`, which a command shares with the group: where the DSN came from, and why nothing may be written.
DSN_FROM = "leasetop.dsn_from"
READ_ONLY = "leasetop.read_only"


class Commands(click.Group):
    """Turns an error for a person into one line on standard error and an exit status; never a traceback."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._sections: dict[str, list[click.Command]] = {}

    def add(self, section: str, *commands: click.Command) -> None:
        """Commands under a heading of the help, in this order."""
        for command in commands:
            self.add_command(command)
            self._sections.setdefault(section, []).append(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [command.name or "" for commands in self._sections.values() for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences under headings, where click would cut them."""
        widest = max(map(len, self.commands))
        for section, commands in self._sections.items():
            with formatter.section(section):
                formatter.write_dl(
                    [(f"{command.name:<{widest}}", command.get_short_help_str(limit=500)) for command in commands]
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CommandError as error:
            fail(_about_dsn(error, ctx) if isinstance(error, DsnError) else str(error), 2)
        except Unreachable as error:
            hint = "; no --dsn was given and libpq's defaults were tried. To look around: leasetop demo"
            fail(_about_dsn(error, ctx) if ctx.meta.get(DSN_FROM) else f"{error}{hint}", 1)
        except LeasetopError as error:
            why = ctx.meta.get(READ_ONLY) if isinstance(error, ReadOnly) else None
            fail(f"{error}; {why}" if why else str(error), 1)
        except UnicodeError:
            fail("an argument is not valid UTF-8", 2)
        except OSError as error:
            # A pipe that was closed is click's; a full disk or a closed standard output is said here.
            if isinstance(error, BrokenPipeError):
                raise
            fail(error.strerror or str(error), 1)


def _about_dsn(error: LeasetopError, ctx: click.Context) -> str:
    """The error, with what gave the DSN in the place of --dsn."""
    return str(error).replace("--dsn", ctx.meta.get(DSN_FROM) or "--dsn")


def fail(message: str, status: int) -> NoReturn:
    from leasetop import text

    click.echo(f"leasetop: {text.safe(message)}", err=True)
    sys.exit(status)
