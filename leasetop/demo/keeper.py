"""The server's parent: starts PostgreSQL, and stops it when leasetop is gone, however that came about.

Run by its path as a process of its own, with nothing of leasetop imported. Its standard input is a pipe from leasetop;
when it ends (quit, crash, SIGKILL), the server is shut down. A line `restart fast` or `restart immediate` restarts
it. Its standard output says `ready PID`, or `failed WHY`. The only argument is the configuration, as JSON.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

# How long each way of asking the server to end may take before the next, harder one.
_ENDS = ((signal.SIGINT, 5.0), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 2.0))
_START_S = 30.0


class Keeper:
    """One server, from start to end."""

    def __init__(self, command: list[str], data: str, log: str, account: dict[str, object]) -> None:
        self._command, self._data, self._log, self._account = command, Path(data), log, account
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """What to say of the start."""
        try:
            with open(self._log, "ab") as log:
                self._server = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # Not in the terminal's foreground group: Ctrl-C must not reach the server before us.
                    process_group=0,
                    cwd="/",
                    **self._account,  # type: ignore[call-overload]
                )
        except OSError as error:
            return f"failed {error}"
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                return f"failed the server ended with status {self._server.returncode}"
            if self._is_ready(self._server.pid):
                return f"ready {self._server.pid}"
            time.sleep(0.02)
        self.stop(signal.SIGQUIT)
        return f"failed no answer within {_START_S:.0f} s"

    def stop(self, first: signal.Signals = signal.SIGINT) -> None:
        """Ends the server; harder each time that it does not end in time."""
        server = self._server
        if server is None or server.poll() is not None:
            return
        for number, patience_s in _ENDS[[way for way, _ in _ENDS].index(first) :]:
            server.send_signal(number)
            try:
                server.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue
            return

    def ended(self) -> bool:
        return self._server is None or self._server.poll() is not None

    def _is_ready(self, pid: int) -> bool:
        # The server writes its state to the last line of this file; pg_ctl waits for it in the same way.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def main() -> None:
    told = json.loads(sys.argv[1])
    keeper = Keeper(told["command"], told["data"], told["log"], told["account"])
    over = False

    def end(number: int, frame: object) -> None:
        nonlocal over
        over = True

    # Handlers, not SIG_IGN: what is ignored here would be ignored in the server, too.
    signal.signal(signal.SIGTERM, end)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, lambda number, frame: None)
    _say(keeper.start())
    while not over and not keeper.ended():
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], 0.5)
        if not ready:
            continue
        word = os.read(sys.stdin.fileno(), 100).decode()
        if not word:
            break
        keeper.stop(signal.SIGQUIT if "immediate" in word else signal.SIGINT)
        _say(keeper.start())
    keeper.stop()


def _say(line: str) -> None:
    try:
        os.write(sys.stdout.fileno(), line.encode() + b"\n")
    except OSError:
        # Nobody listens any more; the end of the pipe says the same in a moment.
        return


if __name__ == "__main__":
    main()
