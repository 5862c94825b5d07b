"""Engines as processes: a driver script in the engine's own Python, called to its end or left running as a worker."""

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.engines import environment

_PATIENCE = 30.0
"""Seconds for anything that a worker does; only a failing test waits that long."""


class Worker:
    """A running worker: what it says comes as events, and it can be frozen, let go on, and killed."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._log: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        self._log += self._process.stderr

    def wait(self, event: str) -> str:
        """Until that event comes; what the worker said with it."""
        while True:
            try:
                line = self._lines.get(timeout=_PATIENCE)
            except queue.Empty:
                raise AssertionError(f"no {event} in {_PATIENCE} s: {''.join(self._log)}") from None
            self._log.append(line or "")
            assert line is not None, f"the worker ended before {event}: {''.join(self._log)}"
            name, _, rest = line.strip().partition(" ")
            if name == event:
                return rest.strip()

    def freeze(self) -> None:
        """As a machine that hangs: nothing of it runs, its connections stay."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """As a machine that comes back, and knows nothing of the time it was away."""
        os.kill(self._process.pid, signal.SIGCONT)

    def go_on(self) -> None:
        """Lets the task LATE end."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: no handler of the engine's runs."""
        self._process.kill()
        self._process.wait(_PATIENCE)

    def end(self) -> None:
        """Waits for the worker to end by itself, and in peace."""
        status = self._process.wait(_PATIENCE)
        self._join()
        assert status == 0, f"the worker ended with {status}: {''.join(self._log)}"

    def close(self) -> None:
        """Whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(_PATIENCE)
        self._join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(5)


class Engine:
    """One engine on one database, through its driver script."""

    def __init__(self, name: str, script: str, dsn: str) -> None:
        there = environment.directory(name)
        assert there is not None
        self._command = [str(environment.python(there)), str(Path(__file__).parent / script), _url(dsn)]
        self.name = name
        self.dsn = dsn

    def call(self, *words: str) -> str:
        """Runs a subcommand to its end; what it printed."""
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, timeout=_PATIENCE)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def work(self, behaviour: str) -> str:
        """A worker that does all that is due, and ends."""
        return self.call("work", behaviour)

    @contextmanager
    def worker(self, behaviour: str) -> Iterator[Worker]:
        """A worker that does not outlive the block."""
        made = Worker([*self._command, "work", behaviour])
        try:
            yield made
        finally:
            made.close()

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What a query says."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def change(self, statement: str) -> int:
        """Changes rows behind the engine's back, as when making evidence old; how many."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement.encode()).rowcount


def _url(dsn: str) -> str:
    """The same database as a URL: the one form that all of these engines' drivers take."""
    given = conninfo_to_dict(dsn)
    host = quote(str(given["host"]), safe="")
    return f"postgresql://{given['user']}@/{given['dbname']}?host={host}&port={given['port']}"
