"""Errors that a person will read: one line, what is wrong and what to do. The command line shows them as they are."""


class LeasetopError(Exception):
    """Something that leasetop cannot do, in words for the operator."""


class CommandError(LeasetopError):
    """A mistake in the command itself: exit status 2."""


class DsnError(CommandError):
    """The connection string is not one."""


class Unreachable(LeasetopError):
    """No connection, or one that broke: trying again later may help."""


class Refused(LeasetopError):
    """The database answered, and said no."""


class ReadOnly(Refused):
    """Nothing can be written on this connection, whatever it is."""


class NoQueue(LeasetopError):
    """The database has no table that leasetop knows."""
