"""Workers under test: in a thread of this process, or as real processes that can be killed and frozen.

Both report what happens as events, so that tests wait for the event instead of sleeping.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

Event = tuple[str, int | None]


class Events:
    """Events as they come, from any thread; `wait` returns once the wanted one has come, ever."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: str, job: int | None = None) -> None:
        with self._changed:
            self.seen.append((event, job))
            self._changed.notify_all()

    def wait(self, event: str, job: int | None = None, *, times: int = 1, timeout: float = 15.0) -> None:
        """Until `event` (of `job`, where one is given) has come that often."""
        with self._changed:
            came = self._changed.wait_for(lambda: self.count(event, job) >= times, timeout)
            assert came, f"no {event} of job {job} in {timeout} s, only {self.seen}"

    def count(self, event: str, job: int | None = None) -> int:
        return sum(1 for name, id_ in self.seen if name == event and job in (None, id_))


class Runs(Protocol):
    """A Worker or a Watcher."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def running(*workers: Runs) -> Iterator[None]:
    """Runs them in threads of their own; at the end they are stopped, at once, and whatever they raised is raised."""
    errors: list[BaseException] = []

    def run(worker: Runs) -> None:
        try:
            worker.run()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=[worker], daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(10)
            if thread.is_alive():
                for worker in workers:
                    worker.stop()
                thread.join(10)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)


# The handlers of the worker processes. `wait` ends when the test says "go on" (a line on stdin); `forever` never.
_SCRIPT = """
import asyncio, sys, threading, time
from datetime import timedelta
from leasetop.model import Policy
from leasetop.worker import Settings, Worker

def say(event, job=None):
    print(event, "" if job is None else job, flush=True)

gate = threading.Event()

def wait(job):
    say("begun", job.id)
    if threading.current_thread() is threading.main_thread():
        sys.stdin.readline()
    else:
        gate.wait()

async def await_(job):
    say("begun", job.id)
    await asyncio.to_thread(gate.wait)

def forever(job):
    say("begun", job.id)
    time.sleep(3600)

async def aforever(job):
    say("begun", job.id)
    await asyncio.sleep(3600)

def done(job):
    pass

dsn, handler, settings = sys.argv[1], globals()[sys.argv[2]], eval(sys.argv[3])
worker = Worker(dsn, handler, settings, observer=say)
worker.stop_on_signals()
if not (settings.concurrency == 1 and handler is wait):
    threading.Thread(target=lambda: (sys.stdin.readline(), gate.set()), daemon=True).start()
say("owner " + worker.owner)
worker.run()
say("bye")
"""


class Process:
    """A worker process. Its log is in `log` once it has ended."""

    def __init__(self, dsn: str, handler: str, settings: str = "Settings()") -> None:
        self.events = Events()
        self.owner = ""
        self.log: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, dsn, handler, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event, _, rest = line.strip().partition(" ")
            if event == "owner":
                self.owner = rest
            else:
                self.events(event, int(rest) if rest else None)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        self.log += self._process.stderr

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def go_on(self) -> None:
        """Lets the handler `wait` return."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self, timeout: float = 15.0) -> int:
        """Waits for the process to end by itself; its exit status."""
        status = self._process.wait(timeout)
        for reader in self._readers:
            reader.join(5)
        return status

    def close(self) -> None:
        """Whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
        self.end()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def process(dsn: str, handler: str, settings: str = "Settings()") -> Iterator[Process]:
    """A worker process that does not outlive the block."""
    made = Process(dsn, handler, settings)
    try:
        yield made
    finally:
        made.close()
