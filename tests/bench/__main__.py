"""`python -m tests.bench [throughput|sweep|heartbeats|refresh|others|start ...]`: tables, with ratios from one run."""

import argparse
import tempfile
from pathlib import Path

from leasetop.demo.postgres import EmbeddedPostgres
from tests.bench import heartbeats, others, refresh, start, sweep, throughput

# As a server is that is meant for work, but for the disk: it is the same for all that are compared.
SETTINGS = {"synchronous_commit": "off", "fsync": "off", "shared_buffers": "512MB", "max_wal_size": "4GB"}
MEASURES = {
    "throughput": throughput.measure,
    "sweep": sweep.measure,
    "heartbeats": heartbeats.measure,
    "refresh": refresh.measure,
    "others": others.measure,
    "start": start.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument(
        "--peers", type=Path, help="where to install procrastinate and pgqueuer; without it: not measured"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each; the median counts")
    parser.add_argument("--finished", type=int, default=1_000_000, help="finished rows in the tables of others")
    told = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lt-bench-", dir="/tmp"))
    directory.chmod(0o755)
    with EmbeddedPostgres(directory / "pg", SETTINGS) as server:
        for name in told.measures or MEASURES:
            print(f"\n== {name}", flush=True)
            MEASURES[name](server, told)


if __name__ == "__main__":
    main()
