"""Weakens each guard of the protocol in turn, and shows that a test fails: `python -m tests.protocol.mutations`.

A mutation is a file of `sql/`, a text in it, and what it becomes; every occurrence is changed, since a guard is stated
twice: once under the lock, and again in the UPDATE. Prints which test caught which mutation; exits with 1 when one
survives. The tests run in processes of their own, on copies of the SQL; the files themselves are not touched.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SQL = ROOT / "sql"
# The tests take a fifth of this; who waits for a row that another test holds waits for ever.
_PATIENCE_S = 150.0
TESTS = ("guards", "claim", "sweep", "requeue", "interleavings", "history", "shape", "state_machine")


@dataclass(frozen=True)
class Mutation:
    """One weakened statement."""

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    """Regular expressions and replacements; each must be found."""

    def write(self, folder: Path) -> None:
        """The weakened file, into `folder`."""
        text = (SQL / f"{self.file}.sql").read_text()
        for old, new in self.changes:
            text, number = re.subn(old, new, text)
            if not number:
                raise SystemExit(f"{self.name}: nothing like {old!r} in sql/{self.file}.sql any more")
        (folder / f"{self.file}.sql").write_text(text)


def drop(name: str, file: str, *guards: str) -> Mutation:
    """Without these guards."""
    return Mutation(name, file, tuple((guard, "") for guard in guards))


def change(name: str, file: str, old: str, new: str) -> Mutation:
    """With this instead of that."""
    return Mutation(name, file, ((old, new),))


_ATTEMPT = r"\n\s+AND (j\.)?attempts = (:attempt::integer|a\.attempt|\(ARRAY.*?j\.id\)\])"
_OWNER = r"\n\s+AND (j\.)?lease_owner = :owner::text"
_STATUS = r"AND (j\.)?status = 'Processing'"
_LIVE = r"lease_until < clock_timestamp\(\)"
_LOCK = r"\n\s+FOR UPDATE( OF j)?( SKIP LOCKED)?"

MUTATIONS = (
    *(drop(f"{file}: not fenced by attempt", file, _ATTEMPT) for file in ("heartbeat", "complete", "fail", "release")),
    *(drop(f"{file}: not fenced by owner", file, _OWNER) for file in ("heartbeat", "complete", "fail", "release")),
    *(
        change(f"{file}: whatever the status", file, _STATUS, "AND true")
        for file in ("heartbeat", "complete", "fail", "release")
    ),
    drop("heartbeat: a lease is revived under park", "heartbeat", r"\n\s+AND \(:revive.*?clock_timestamp\(\)\)"),
    change("heartbeat: the stage is forgotten", "heartbeat", r"coalesce\(a\.stage, j\.stage\)", "j.stage"),
    change("claim: a live lease is taken over", "claim", _LIVE, "lease_until > clock_timestamp()"),
    change("claim: any lease is taken over", "claim", _LIVE, "lease_until IS NOT NULL"),
    change("claim: < becomes <=", "claim", _LIVE, "lease_until <= clock_timestamp()"),
    change("claim: a takeover under park", "claim", r":takeover::boolean", "(:takeover::boolean OR true)"),
    drop("claim: beyond the last attempt", "claim", r"\n\s+AND (j\.)?attempts < (j\.)?max_attempts"),
    change("claim: before its time", "claim", r"run_after <= statement_timestamp\(\)", "run_after IS NOT NULL"),
    change("claim: no attempt is spent", "claim", r"j\.attempts \+ 1", "j.attempts"),
    change("claim: as many as there are", "claim", r"LIMIT :batch::integer( - \(SELECT.*?\))?", "LIMIT 1000"),
    change("claim: a limit that a plan can multiply", "claim", r" - \(SELECT count\(\*\) FROM expired\)", ""),
    change("claim: in any order", "claim", r"ORDER BY run_after, id", "ORDER BY id DESC"),
    change("claim: waits for a locked row", "claim", r"FOR UPDATE SKIP LOCKED", "FOR UPDATE"),
    change("claim: the lease counts from before the wait", "claim", r"clock_timestamp\(\) \+ :ttl", "now() + :ttl"),
    change("claim: the lost attempt has no end", "claim", r"ARRAY\(SELECT id FROM claimed\)", "ARRAY[]::bigint[]"),
    Mutation(
        "claim: neither locked nor stated again",
        "claim",
        ((_LOCK, ""), (r"AND j\.attempts < j\.max_attempts\n[\s\S]*?\)\)\n", "\n")),
    ),
    change("claim_by_id: a live lease is taken over", "claim_by_id", _LIVE, "lease_until IS NOT NULL"),
    change("claim_by_id: beyond the last attempt", "claim_by_id", r"attempts < (j\.)?max_attempts", "attempts >= 0"),
    change("claim_by_id: < becomes <=", "claim_by_id", _LIVE, "lease_until <= clock_timestamp()"),
    change("complete: no end is written", "complete", r"ARRAY\(SELECT id FROM done\)", "ARRAY[]::bigint[]"),
    change("complete: the owner stays", "complete", r"lease_owner = NULL", "lease_owner = j.lease_owner"),
    change("complete: a late one leaves no trace", "complete", r"o\.outcome = 'refused'", "false"),
    change("complete: waits for a locked row", "complete", r"FOR UPDATE SKIP LOCKED", "FOR UPDATE"),
    change("fail: attempts without end", "fail", r"AND j\.attempts < j\.max_attempts", "AND true"),
    change("fail: no wait", "fail", r"random\(\) \* least", "0 * least"),
    change("fail: a wait without a cap", "fail", r"least\(:backoff_cap::interval,\s*", "least('100 years'::interval, "),
    change("fail: a wait that does not grow", "fail", r"power\(2, .*?- 1\)", "1"),
    change("fail: no end is written", "fail", r"JOIN failed f USING \(id\)\n\)", "JOIN failed f USING (id) WHERE false\n)"),
    change("fail: the times count from before the wait", "fail", r"clock_timestamp\(\)", "now()"),
    change("release: no further attempt", "release", r"greatest\(j\.max_attempts, j\.attempts \+ 1\)", "j.max_attempts"),
    change("release: no end is written", "release", r"ARRAY\(SELECT id FROM released\)", "ARRAY[]::bigint[]"),
    change("sweep: live leases, too", "sweep", _LIVE, "lease_until IS NOT NULL"),
    change("sweep: < becomes <=", "sweep", _LIVE, "lease_until <= clock_timestamp()"),
    change("sweep: what was not previewed, too", "sweep", r":ids::bigint\[\] IS NULL", "true"),
    change("sweep: whatever the attempt", "sweep", r"\(id, attempts\) IN \(SELECT \*", "id IN (SELECT unnest"),
    change("sweep: without bounds", "sweep", r"LIMIT :batch::integer", "LIMIT 1000 + :batch::integer"),
    change("sweep: waits for a locked row", "sweep", r"FOR UPDATE SKIP LOCKED", "FOR UPDATE"),
    change("sweep: attempts without end", "sweep", r"WHEN j\.attempts < j\.max_attempts THEN 'Pending'", "WHEN true THEN 'Pending'"),
    change("sweep: parks nothing", "sweep", r":policy::text = 'park'", "false"),
    change("sweep: the owner stays", "sweep", r"lease_owner = NULL", "lease_owner = j.lease_owner"),
    change("sweep: no end is written", "sweep", r"WHERE id = ANY \(ARRAY\(SELECT id FROM swept\)\)", "WHERE false"),
    Mutation(
        "sweep: neither locked nor stated again",
        "sweep",
        ((_LOCK, ""), (r"AND j\.status = 'Processing'\n\s+AND j\.lease_until < clock_timestamp\(\)", "")),
    ),
    drop("requeue: not as it was seen", "requeue", r"\n\s+AND ROW\(.*?:fence::text"),
    change("requeue: a live lease", "requeue", r":force::boolean OR", "true OR"),
    change("requeue: Completed, too", "requeue", r"IN \('Stuck', 'Failed'\)", "IN ('Stuck', 'Failed', 'Completed')"),
    change("requeue: Pending again", "requeue", r"IN \('Stuck', 'Failed'\)", "IN ('Stuck', 'Failed', 'Pending')"),
    change("requeue: no further attempt", "requeue", r"greatest\(j\.max_attempts, j\.attempts \+ 1\)", "j.max_attempts"),
    change("requeue: the open attempt has no end", "requeue", r"WHERE h\.status = 'Processing'\n", "WHERE false\n"),
    change("requeue: leaves no trace", "requeue", r"CROSS JOIN \(SELECT count\(\*\) FROM ended\) AS first", "WHERE false"),
    change("requeue: < becomes <=", "requeue", _LIVE, "lease_until <= clock_timestamp()"),
    drop("late: as often as it is said", "late", r"\n WHERE NOT EXISTS[\s\S]*\)\)"),
)  # fmt: skip


def killer(mutation: Mutation) -> str | None:
    """The first test that fails with this mutation; None: it survives."""
    with tempfile.TemporaryDirectory() as folder:
        mutation.write(Path(folder))
        files = [str(ROOT / "tests" / "protocol" / f"test_{name}.py") for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "tests.protocol.mutant", "--no-header", *files]
        environment = {**os.environ, "LEASETOP_MUTANT": folder, "LEASETOP_EXAMPLES": "60"}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S
            )
        except subprocess.TimeoutExpired:
            return "(a test waits for ever)"
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode != 1 or found is None:
        raise SystemExit(f"{mutation.name}: pytest itself failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1].split("/")[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    told = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if told.only in mutation.name]
    survivors = 0
    with ThreadPoolExecutor(told.jobs) as pool:
        for mutation, test in zip(chosen, pool.map(killer, chosen), strict=True):
            survivors += test is None
            print(f"{mutation.name:<48} {test or 'SURVIVED'}", flush=True)
    print(f"{len(chosen)} mutations, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
