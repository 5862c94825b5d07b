"""The terminal, and what becomes of the screen when it vanishes: a closed window, a lost ssh.

Textual's writer ends at the first write that fails; what it then has queued is never taken, and the program waits for
that for ever, with its input thread spinning. Here a write that fails is dropped, and the screen leaves by the door.
"""

from collections.abc import Callable
from typing import IO, Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

GONE = 129
"""The exit status, as of a hang-up."""


class _Vanishing:
    """A file whose writes never fail; the first that would have failed is told."""

    def __init__(self, file: IO[str], on_gone: Callable[[], object]) -> None:
        self._file, self._on_gone = file, on_gone
        self._gone = False

    def write(self, data: str) -> int:
        if not self._gone:
            try:
                return self._file.write(data)
            except (OSError, ValueError):
                self._vanish()
        return len(data)

    def flush(self) -> None:
        if not self._gone:
            try:
                self._file.flush()
            except (OSError, ValueError):
                self._vanish()

    def fileno(self) -> int:
        return self._file.fileno()

    def _vanish(self) -> None:
        self._gone = True
        self._on_gone()


class Terminal(LinuxDriver):
    """Textual's driver on such a file."""

    def __init__(self, app: App[Any], **more: Any) -> None:
        super().__init__(app, **more)
        self._file: Any = _Vanishing(self._file, lambda: app.call_later(app.exit, None, GONE))

    def run_input_thread(self) -> None:
        """Reads on after bytes that are no UTF-8 (line noise, a terminal of another charset), which are lost."""
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue

    def let_go(self) -> None:
        """Ends the input thread, which no daemon is: on the end of a file it would spin, and keep the process."""
        self.exit_event.set()
