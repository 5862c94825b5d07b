"""Where handlers run: inline, in threads, or as tasks of an event loop.

A runner takes jobs and gives back results: a job and the exception that ended it, or None. It knows nothing
of SQL. All three have the same four verbs, called by the worker's main loop only; `abort` may come from any
thread.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

from leasetop.leases import ClaimedJob, LeaseLost
from leasetop.session import elapsed

Result = tuple[ClaimedJob, BaseException | None]

# Inline jobs that ended wait at most this long for others, to be completed together with them.
_SLICE_S = 0.05
# How long cancelled tasks may take to clean up after themselves.
_UNWIND_S = 2.0


class Interrupted(BaseException):
    """Raised by a signal within an inline handler: stop now. Like KeyboardInterrupt, no Exception."""


class Runner(Protocol):
    """Runs handlers."""

    @property
    def free(self) -> int:
        """How many more jobs it would take right now."""

    @property
    def busy(self) -> bool:
        """Whether handlers run right now, or results wait."""

    def start(self, jobs: list[ClaimedJob]) -> None:
        """Takes jobs, never more than are free."""

    def finished(self, timeout: float) -> list[Result]:
        """All results that are there; waits up to `timeout` seconds for the first one, or until woken."""

    def abort(self, job: ClaimedJob) -> None:
        """The job's lease is lost: stop its handler, where that can be done."""

    def halt(self) -> None:
        """Begins no more handlers; those that run go on. From a signal handler, too."""

    def close(self) -> None:
        """Cuts off the handlers that still run, where that can be done."""


class _Mailbox:
    """Results on their way to the main loop. A SimpleQueue: its put is safe in signal handlers."""

    def __init__(self) -> None:
        self._letters: queue.SimpleQueue[Result | None] = queue.SimpleQueue()
        self.put = self._letters.put

    def wake(self) -> None:
        self._letters.put(None)

    def collect(self, timeout: float) -> list[Result]:
        found: list[Result] = []
        try:
            letter = self._letters.get(timeout=timeout) if timeout > 0 else self._letters.get_nowait()
            while True:
                if letter is not None:
                    found.append(letter)
                letter = self._letters.get_nowait()
        except queue.Empty:
            return found


class Inline:
    """Runs a plain handler in the main thread, one job after the other: no hop, so the fastest."""

    def __init__(self, handler: Callable[[ClaimedJob], object], batch: int) -> None:
        self._handler, self._batch = handler, batch
        self._waiting: deque[ClaimedJob] = deque()
        self._mailbox = _Mailbox()
        # Kept here, not in `finished`: what has ended survives a KeyboardInterrupt in the next handler.
        self._ended: list[Result] = []
        self._halted = False
        self._interruptible = False

    @property
    def free(self) -> int:
        return 0 if self._waiting else self._batch

    @property
    def busy(self) -> bool:
        return False  # between two calls of `finished` nothing runs

    def start(self, jobs: list[ClaimedJob]) -> None:
        self._waiting.extend(jobs)

    def finished(self, timeout: float) -> list[Result]:
        if not self._waiting or self._halted:
            self._mailbox.collect(0.0 if self._ended else timeout)
        until = elapsed() + _SLICE_S
        while self._waiting and not self._halted:
            job = self._waiting.popleft()
            self._ended.append((job, self._end_of(job)))
            if elapsed() >= until:
                break
        results, self._ended = self._ended, []
        return results

    def abort(self, job: ClaimedJob) -> None:
        pass  # nobody can stop the main thread: the handler asks held(), or is told by reached()

    def halt(self) -> None:
        self._halted = True
        self._mailbox.wake()

    def close(self) -> None:
        self._waiting.clear()

    def interrupt(self) -> None:
        """Within a signal handler of the main thread: raises Interrupted where a job's handler runs."""
        if self._interruptible:
            self._interruptible = False
            raise Interrupted

    def _end_of(self, job: ClaimedJob) -> BaseException | None:
        end: BaseException | None = Interrupted()
        try:
            if not job.held():
                return LeaseLost()
            job.started = True
            self._interruptible = True
            try:
                self._handler(job)
                end = None
            except (Exception, SystemExit) as error:
                end = error
            self._interruptible = False
        except Interrupted:
            # Perhaps only after the handler had returned: then its end stands.
            pass
        return end


class Threads:
    """Runs a plain handler in threads. Daemons: a handler that never returns does not keep the process."""

    def __init__(self, handler: Callable[[ClaimedJob], object], concurrency: int) -> None:
        self._handler, self._concurrency = handler, concurrency
        self._running = 0
        self._threads = 0
        self._waiting: queue.SimpleQueue[ClaimedJob | None] = queue.SimpleQueue()
        self._mailbox = _Mailbox()

    @property
    def free(self) -> int:
        return self._concurrency - self._running

    @property
    def busy(self) -> bool:
        return self._running > 0

    def start(self, jobs: list[ClaimedJob]) -> None:
        self._running += len(jobs)
        while self._threads < min(self._concurrency, self._running):
            self._threads += 1
            name = f"leasetop-handler-{self._threads}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        for job in jobs:
            self._waiting.put(job)

    def finished(self, timeout: float) -> list[Result]:
        results = self._mailbox.collect(timeout)
        self._running -= len(results)
        return results

    def abort(self, job: ClaimedJob) -> None:
        pass  # no thread can be stopped from outside: the handler asks held(), or is told by reached()

    def halt(self) -> None:
        self._mailbox.wake()

    def close(self) -> None:
        for _ in range(self._threads):
            self._waiting.put(None)

    def _serve(self) -> None:
        while (job := self._waiting.get()) is not None:
            end: BaseException | None = LeaseLost()
            try:
                if job.held():
                    job.started = True
                    self._handler(job)
                    end = None
            except BaseException as error:
                end = error
            self._mailbox.put((job, end))


class Tasks:
    """Runs an async handler as tasks on an event loop, which has a thread of its own."""

    def __init__(
        self,
        handler: Callable[[ClaimedJob], Awaitable[object]],
        concurrency: int,
        lapsed: Callable[[ClaimedJob], None],
    ) -> None:
        self._handler, self._concurrency, self._lapsed = handler, concurrency, lapsed
        self._running = 0
        self._tasks: dict[ClaimedJob, asyncio.Task[BaseException | None]] = {}
        self._timers: dict[ClaimedJob, asyncio.TimerHandle] = {}
        self._mailbox = _Mailbox()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="leasetop-tasks", daemon=True)
        self._thread.start()

    @property
    def free(self) -> int:
        return self._concurrency - self._running

    @property
    def busy(self) -> bool:
        return self._running > 0

    def start(self, jobs: list[ClaimedJob]) -> None:
        if jobs:
            self._running += len(jobs)
            self._loop.call_soon_threadsafe(self._spawn, jobs)

    def finished(self, timeout: float) -> list[Result]:
        results = self._mailbox.collect(timeout)
        self._running -= len(results)
        return results

    def abort(self, job: ClaimedJob) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing runs any more
            self._loop.call_soon_threadsafe(self._cancel, job)

    def halt(self) -> None:
        self._mailbox.wake()

    def close(self) -> None:
        """Cancels what runs; gives a blocked loop up after a moment, since its thread is a daemon."""
        asyncio.run_coroutine_threadsafe(self._unwind(), self._loop)
        self._thread.join(_UNWIND_S + 0.5)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    # Called on the loop.

    def _spawn(self, jobs: Iterable[ClaimedJob]) -> None:
        for job in jobs:
            task = self._loop.create_task(self._attempt(job))
            self._tasks[job] = task
            # A callback, since a task that is cancelled before its first step never enters its coroutine.
            task.add_done_callback(partial(self._done, job))
            self._watch(job)

    async def _attempt(self, job: ClaimedJob) -> BaseException | None:
        if not job.held():
            return LeaseLost()
        job.started = True
        try:
            await self._handler(job)
        except BaseException as error:  # SystemExit, too: raised in a task it would end the loop
            return error
        return None

    def _done(self, job: ClaimedJob, task: asyncio.Task[BaseException | None]) -> None:
        self._timers.pop(job).cancel()
        del self._tasks[job]
        self._mailbox.put((job, asyncio.CancelledError() if task.cancelled() else task.result()))

    def _watch(self, job: ClaimedJob) -> None:
        """Looks at the deadline here as well: the thread of the heartbeats may hang in a dead connection."""
        left = job.deadline - elapsed()
        if left <= 0:
            self._lapsed(job)
        wait = left + 0.001 if left > 0 else 1.0
        self._timers[job] = self._loop.call_later(wait, self._watch, job)

    def _cancel(self, job: ClaimedJob) -> None:
        if job in self._tasks:
            self._tasks[job].cancel()

    async def _unwind(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_UNWIND_S)
        await self._loop.shutdown_asyncgens()
        self._loop.stop()
