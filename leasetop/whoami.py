"""Who acts: the name that goes into the history beside an operator's act."""

import getpass
import os
import socket


def operator() -> str:
    """`user@host` of the person at this terminal; behind sudo the one who called it."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        # No name for this uid (a container): the number still says who.
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
