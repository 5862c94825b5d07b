"""Claim and complete, with history written: one real worker process against pgbench with the same SQL, and two peers.

The jobs do nothing. Rounds of all candidates are interleaved, and the median of each counts: the ratios are of one run.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

from leasetop import statements
from leasetop.demo.postgres import EmbeddedPostgres
from tests.bench import table

BATCHES = {1: 6_000, 10: 30_000, 100: 120_000}
"""Batch -> jobs of one round."""

_PEER_JOBS = 6_000
"""At most so many for a peer: one does some 800 a second at any batch, and a round should take seconds."""

_WORKER = """
import sys, time
from leasetop.worker import Settings, Worker
dsn, batch, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = 0
def handler(job):
    global done
    done += 1
    if done >= jobs:
        worker.stop()
worker = Worker(dsn, handler, Settings(batch=batch))
began = time.perf_counter()
worker.run()
print(done / (time.perf_counter() - began))
"""

_PROCRASTINATE = """
import asyncio, sys, time, procrastinate
dsn, batch, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))
@app.task(name="noop")
async def noop():
    pass
async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, 1000):
            await noop.batch_defer_async(*[{} for _ in range(min(1000, jobs - start))])
        began = time.perf_counter()
        await app.run_worker_async(wait=False, concurrency=batch, install_signal_handlers=False, listen_notify=False)
        print(jobs / (time.perf_counter() - began))
asyncio.run(main())
"""

_PGQUEUER = """
import asyncio, sys, time
from datetime import timedelta
import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries
host, port, name, batch, jobs = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
async def main():
    connection = await asyncpg.connect(host=host, port=port, user="postgres", database=name)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()
    for start in range(0, jobs, 1000):
        number = min(1000, jobs - start)
        await queries.enqueue(["noop"] * number, [None] * number, [0] * number)
    queuer = PgQueuer(driver)
    done = 0
    began = time.perf_counter()
    @queuer.entrypoint("noop")
    async def noop(job):
        nonlocal done
        done += 1
        if done >= jobs:
            print(jobs / (time.perf_counter() - began), flush=True)
            queuer.shutdown.set()
    await queuer.run(dequeue_timeout=timedelta(seconds=1), batch_size=batch)
asyncio.run(main())
"""


def measure(server: EmbeddedPostgres, told: argparse.Namespace) -> None:
    """Jobs a second at batch 1, 10 and 100."""
    peers = {} if told.peers is None else _install(told.peers)
    table.row("jobs a second", *(f"batch {batch}" for batch in BATCHES))
    candidates: dict[str, Callable[[int, int], float]] = {
        "pgbench, 1 client": lambda batch, jobs: _pgbench(server, batch, jobs),
        "leasetop worker": lambda batch, jobs: _worker(server, batch, jobs),
    }
    if "procrastinate" in peers:
        # It claims one by one whatever it is told; its concurrency is the nearest that it has to a batch.
        candidates["procrastinate (concurrency)"] = lambda batch, jobs: _procrastinate(
            peers, server, batch, min(jobs // 4, _PEER_JOBS)
        )
    if "pgqueuer" in peers:
        candidates["pgqueuer (batch_size)"] = lambda batch, jobs: _pgqueuer(
            peers, server, batch, min(jobs // 4, _PEER_JOBS)
        )
    figures: dict[str, list[float]] = {name: [] for name in candidates}
    for batch, jobs in BATCHES.items():
        rounds: dict[str, list[float]] = {name: [] for name in candidates}
        for _ in range(told.rounds):
            for name, run in candidates.items():
                rounds[name].append(run(batch, jobs))
        for name, found in rounds.items():
            figures[name].append(statistics.median(found))
    for name, found in figures.items():
        table.row(name, *(f"{figure:,.0f}" for figure in found))
    ours = figures["leasetop worker"]
    for name, found in figures.items():
        if found is not ours:
            table.row(f"leasetop / {name}", *(own / other for own, other in zip(ours, found, strict=True)))


def _worker(server: EmbeddedPostgres, batch: int, jobs: int) -> float:
    dsn = table.fresh(server, "bench")
    table.enqueue(dsn, jobs + batch)
    return _figure([sys.executable, "-c", _WORKER, dsn, str(batch), str(jobs)])


def _pgbench(server: EmbeddedPostgres, batch: int, jobs: int) -> float:
    dsn = table.fresh(server, "bench")
    table.enqueue(dsn, jobs + batch)
    claim = _pasted("claim", batch=":batch", takeover="'true'", owner=":owner", ttl="'60 s'")
    claim = re.sub(
        r"SELECT \* FROM claimed\s*$",
        "SELECT coalesce(array_agg(id), '{}') AS ids, coalesce(array_agg(attempts), '{}') AS attempts, "
        "array_fill(NULL::text, ARRAY[count(*)::int]) AS stages FROM claimed",
        claim,
    )
    complete = _pasted("complete", owner=":owner", ids=":ids", attempts=":attempts", stages=":stages")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.sql"
        script.write_text(f"\\set batch {batch}\n\\set owner :client_id\n{claim} \\gset\n{complete};\n")
        words = ["-n", "-M", "prepared", "-c", "1", "-t", str(jobs // batch), "-f", str(script), dsn]
        done = subprocess.run([server.bin("pgbench"), *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pgbench failed:\n{done.stderr[-2000:]}")
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1]) * batch


def _pasted(name: str, **values: str) -> str:
    """A statement for pgbench, whose variables are pasted; `:ids` and such stay variables."""
    sql = statements.bind(statements.text(name)).decode().replace("%%", "%")
    return re.sub(r"%\((\w+)\)s", lambda match: values[match[1]], sql).strip()


def _procrastinate(peers: dict[str, Path], server: EmbeddedPostgres, batch: int, jobs: int) -> float:
    dsn = table.fresh(server, "peer")
    return _figure([str(peers["procrastinate"]), "-c", _PROCRASTINATE, dsn, str(batch), str(max(jobs, 500))])


def _pgqueuer(peers: dict[str, Path], server: EmbeddedPostgres, batch: int, jobs: int) -> float:
    table.fresh(server, "peer")
    where = [str(server.directory / "run"), "5432", "peer"]
    return _figure([str(peers["pgqueuer"]), "-c", _PGQUEUER, *where, str(batch), str(max(jobs, 500))])


def _install(directory: Path) -> dict[str, Path]:
    """Both peers in an environment of their own; the interpreters of those that could be installed."""
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    found = {}
    for name, wanted in (("procrastinate", ["procrastinate", "psycopg[binary]"]), ("pgqueuer", ["pgqueuer[asyncpg]"])):
        done = subprocess.run([python, "-m", "pip", "install", "-q", *wanted], capture_output=True, text=True)
        if done.returncode == 0:
            found[name] = python
        else:
            table.row(name, "cannot be installed")
    return found


def _figure(command: list[str]) -> float:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])
