"""Profiles of the operator's own are SQL that leasetop runs: each is shown before its first use, and after any change.

What was looked at is remembered by its content, in a file that only its owner can read.
"""

import hashlib
import os
from pathlib import Path

import platformdirs

from leasetop.errors import LeasetopError


def file() -> Path:
    """Where it is remembered: a SHA-256 a line."""
    return Path(platformdirs.user_state_path("leasetop")) / "trusted-profiles"


def is_trusted(profile: Path) -> bool:
    """Whether this very content was looked at before. Raises LeasetopError where the profile cannot be read."""
    try:
        return _digest(profile) in file().read_text(encoding="ascii").split()
    except (FileNotFoundError, NotADirectoryError):
        return False


def trust(profile: Path) -> None:
    """Remembers it. Raises LeasetopError."""
    digest, path = _digest(profile), file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, f"{digest}\n".encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise LeasetopError(f"{path} cannot be written: {error.strerror}") from None


def _digest(profile: Path) -> str:
    try:
        return hashlib.sha256(profile.read_bytes()).hexdigest()
    except OSError as error:
        raise LeasetopError(f"{profile}: cannot be read: {error.strerror}") from None
