"""`python -m leasetop.demo.process ROLE`: one process of the demo's fleet: a worker, the watcher, ...

Its standard input is a pipe from the screen. The first line is its configuration as JSON, so that a password is neither
in `ps` nor in the environment; later lines are commands: {"slow": 8}, {"heartbeat": false}. When the pipe ends, the
screen is gone and the process ends at once. Its standard output is its log as JSON lines, for the fleet.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from leasetop import logs
from leasetop.demo.psp import Provider
from leasetop.demo.race import Lane, Racer
from leasetop.demo.shop import Shop
from leasetop.errors import LeasetopError
from leasetop.model import Backoff, Policy
from leasetop.watcher import Watcher
from leasetop.worker import Settings, Worker

Config = Mapping[str, Any]
Command = Callable[[Config], None]

_GONE = 9
"""Exit status of a process whose screen is gone."""


def _worker(config: Config) -> tuple[Worker, Command]:
    provider = Provider(config["dsn"])
    provider.prepare()
    settings = Settings(
        name=config["name"],
        concurrency=config["concurrency"],
        ttl=timedelta(seconds=config["ttl_s"]),
        heartbeat=timedelta(seconds=config["heartbeat_s"]),
        policy=Policy(config["policy"]),
        backoff=timedelta(seconds=config["backoff_s"]),
        drain=timedelta(seconds=config["drain_s"]),
        # The watcher ends expired leases: so one can see them stuck for a while.
        takeover=False,
    )
    worker = Worker(config["dsn"], provider.pay, settings)

    def command(told: Config) -> None:
        provider.slowness = float(told.get("slow", provider.slowness))
        worker.heartbeats_on = bool(told.get("heartbeat", worker.heartbeats_on))

    return worker, command


def _watcher(config: Config) -> tuple[Watcher, Command]:
    interval, backoff = timedelta(seconds=config["interval_s"]), timedelta(seconds=config["backoff_s"])
    watcher = Watcher(config["dsn"], interval=interval, policy=Policy(config["policy"]), backoff=Backoff(base=backoff))
    return watcher, lambda told: None


def _shop(config: Config) -> tuple[Shop, Command]:
    return Shop(config["dsn"], config["rate"]), lambda told: None


def _racer(config: Config) -> tuple[Racer, Command]:
    return Racer(config["dsn"], Lane(config["lane"])), lambda told: None


_ROLES: Mapping[str, Callable[[Config], tuple[Worker | Watcher | Shop | Racer, Command]]] = {
    "worker": _worker,
    "watcher": _watcher,
    "shop": _shop,
    "racer": _racer,
}


class _Report(logging.StreamHandler):  # type: ignore[type-arg]
    """The log on a pipe that must never block: what nobody reads is dropped."""

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        try:
            os.write(sys.stdout.fileno(), line.encode())
        except (BlockingIOError, BrokenPipeError):
            return


def main() -> None:
    """Runs one role until told to stop, or until the screen is gone."""
    config = json.loads(sys.stdin.readline())
    os.set_blocking(sys.stdout.fileno(), False)
    report = _Report()
    report.setFormatter(logs.Json())
    logger = logging.getLogger("leasetop")
    logger.addHandler(report)
    logger.setLevel(logging.INFO)
    try:
        role, command = _ROLES[sys.argv[1]](config)
        signal.signal(signal.SIGTERM, lambda *_: role.stop())
        if isinstance(role, Worker):
            role.stop_on_signals()
        name = role.owner if isinstance(role, Worker) else role.name
        logger.info("owner", extra={"event": "owner", "owner": name})
        threading.Thread(target=_obey, args=(command,), daemon=True).start()
        role.run()
    except LeasetopError as error:
        logger.error("%s", error, extra={"event": "failed"})
        sys.exit(1)


def _obey(command: Command) -> None:
    for line in sys.stdin:
        command(json.loads(line))
    # Not sys.exit: handlers may be asleep in other threads, and nobody is left to wait for them.
    os._exit(_GONE)


if __name__ == "__main__":
    main()
