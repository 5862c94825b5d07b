"""Late finishers: where a queue's completion is not fenced, a worker that was given up can still complete its job.

Whoever requeued such a job wants to know. Each is looked at for an hour; nothing here writes. That a job was completed
without anybody having been seen to claim it anew does not prove a late finisher, it is the sign to look.
"""

from collections.abc import Awaitable, Callable, Sequence

from leasetop import text
from leasetop.clock import ServerClock
from leasetop.model import Job, Key, State

_FOR_S = 3600.0
_MOST = 20
"""The newest so many are watched: the look is a query for each."""


class LateFinishers:
    """Jobs that were requeued from here, and what has become of them."""

    def __init__(self) -> None:
        self._watched: dict[Key, tuple[Job, float | None]] = {}

    def watch(self, requeued: Job) -> None:
        """From now on; `requeued` is the job as it was before."""
        self._watched.pop(requeued.key, None)
        self._watched[requeued.key] = (requeued, None)
        while len(self._watched) > _MOST:
            del self._watched[next(iter(self._watched))]

    def forget(self) -> None:
        """Another queue is shown."""
        self._watched.clear()

    @property
    def any(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._watched)

    async def look(
        self, read: Callable[[Sequence[Key]], Awaitable[dict[Key, Job | None]]], clock: ServerClock
    ) -> list[str]:
        """One warning for each job that ended without having been seen claimed anew. Raises what `read` raises."""
        seen = dict(self._watched)
        found = await read(list(seen))
        now = clock.now().timestamp()
        warnings = []
        for key, (before, since) in seen.items():
            current = found[key]
            ended = current is None or current.state in (State.COMPLETED, State.FAILED)
            if ended:
                what = "gone" if current is None else str(current.state)
                warnings.append(
                    f"job {text.safe(before.id)}, which you requeued, is {what}, and nobody was seen to claim it "
                    f"anew: perhaps {text.safe(before.owner) or 'its former worker'} came late. "
                    "Check whether it was done twice"
                )
            claimed_anew = current is not None and current.state is State.PROCESSING
            over = since is not None and now - since > _FOR_S
            if ended or claimed_anew or over:
                self._watched.pop(key, None)
            elif since is None:
                self._watched[key] = (before, now)
        return warnings
