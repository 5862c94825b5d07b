"""`module:function` on the command line -> the function that does a worker's work."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from leasetop.errors import CommandError


class HandlerError(CommandError):
    """There is no such handler, or it cannot be imported."""


def load(spec: str) -> Callable[[Any], Any]:
    """The named function, plain or async; modules of the current directory count. Raises HandlerError."""
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise HandlerError(f"--handler '{spec}' is not of the form package.module:function")
    # As `python -m` does: the operator stands in the project whose handler this is.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise HandlerError(f"--handler {spec}: cannot import {module_name}: {error}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise HandlerError(f"--handler {spec}: {module_name} has no function {name}")
    return found  # type: ignore[no-any-return]
