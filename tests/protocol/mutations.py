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
TESTS = ("guards", "claim", "sweep", "requeue", "acts", "interleavings", "history", "shape", "state_machine")


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
_SEEN = r"\n\s+AND ROW\(.*?:fence::text"
_LOCK = r"\n\s+FOR UPDATE( OF j)?( SKIP LOCKED)?"

_ACTS = ("discard", "park", "run_now", "release_parked", "undo_requeue")
_AGAIN = r"\n\s+AND j\.status = h\.status[\s\S]*?(?=\n    RETURNING)|\n\s+AND j\.attempts = h\.attempts[\s\S]*?(?=\n    RETURNING)"
_ENDED = r"WHERE h\.status = 'Processing'\n"

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
    drop("requeue: not as it was seen", "requeue", _SEEN),
    change("requeue: a live lease", "requeue", r":force::boolean OR", "true OR"),
    change("requeue: Completed, too", "requeue", r"IN \('Stuck', 'Failed'\)", "IN ('Stuck', 'Failed', 'Completed')"),
    change("requeue: Pending again", "requeue", r"IN \('Stuck', 'Failed'\)", "IN ('Stuck', 'Failed', 'Pending')"),
    change("requeue: no further attempt", "requeue", r"greatest\(j\.max_attempts, j\.attempts \+ 1\)", "j.max_attempts"),
    change("requeue: the open attempt has no end", "requeue", r"WHERE h\.status = 'Processing'\n", "WHERE false\n"),
    change("requeue: leaves no trace", "requeue", r"CROSS JOIN \(SELECT count\(\*\) FROM ended\) AS first", "WHERE false"),
    change("requeue: < becomes <=", "requeue", _LIVE, "lease_until <= clock_timestamp()"),
    *(drop(f"{file}: not as it was seen", file, _SEEN) for file in _ACTS),
    *(change(f"{file}: whatever looks alike", file, r"WHERE j\.id = :key_id::bigint", "WHERE true") for file in _ACTS),
    *(drop(f"{file}: neither locked nor stated again", file, _LOCK, _AGAIN) for file in _ACTS),
    *(change(f"{file}: leaves no trace", file, r"INTO payment_job_history (\(.*\))\n(\s+SELECT h\.id, '[\s\S]*?USING \(id\)\n[\s\S]*?)\)\nSELECT", r"INTO payment_job_history \1\n\2 WHERE false)\nSELECT") for file in _ACTS),
    *(change(f"{file}: whoever did it", file, ":actor::text", "current_user") for file in _ACTS),
    *(change(f"{file}: for whatever reason", file, ":reason::text", "NULL") for file in _ACTS),
    *(change(f"{file}: an error without end", file, "left\\(h.last_error, 500\\)", "h.last_error") for file in _ACTS),
    *(change(f"{file}: a live lease", file, r"j\." + _LIVE, "true") for file in ("discard", "park")),
    *(change(f"{file}: < becomes <=", file, r"j\." + _LIVE, "j.lease_until <= clock_timestamp()") for file in ("discard", "park")),
    *(drop(f"{file}: not without a lease", file, r"j\.lease_until IS NULL OR ") for file in ("discard", "park")),
    *(change(f"{file}: the open attempt has no end", file, _ENDED, "WHERE false\n") for file in ("discard", "park")),
    *(change(f"{file}: an end where none was open", file, _ENDED, "\n") for file in ("discard", "park")),
    *(change(f"{file}: a missing lease expired", file, "'revoked'", "'expired'") for file in ("discard", "park")),
    *(change(f"{file}: the act before the end", file, r"CROSS JOIN \(SELECT count\(\*\) FROM ended\) AS first", "") for file in ("discard", "park")),
    *(change(f"{file}: {status}, too", file, r"IN \('Pending',", f"IN ('{status}', 'Pending',") for file in ("discard", "park") for status in ("Completed", "Cancelled")),
    *(change(f"{file}: the owner stays", file, r"lease_owner = NULL", "lease_owner = j.lease_owner") for file in ("discard", "park", "release_parked")),
    *(change(f"{file}: the lease stays", file, r"lease_until = NULL", "lease_until = j.lease_until") for file in ("discard", "park", "release_parked")),
    *(change(f"{file}: whatever the status", file, r"AND j\.status = '(Pending|Stuck)'", "AND true") for file in ("run_now", "release_parked", "undo_requeue")),
    change("discard: not finished", "discard", r"finished_at = clock_timestamp\(\)", "finished_at = j.finished_at"),
    change("park: what is parked again", "park", r"IN \('Pending', 'Failed'\)", "IN ('Pending', 'Failed', 'Stuck')"),
    change("park: still finished", "park", r"finished_at = NULL", "finished_at = j.finished_at"),
    drop("run_now: what does not wait", "run_now", r"\n\s+AND j\.run_after > clock_timestamp\(\)"),
    change("run_now: still waits", "run_now", r"SET run_after = clock_timestamp\(\)", "SET run_after = j.run_after"),
    drop("release_parked: beyond the last attempt", "release_parked", r"\n\s+AND j\.attempts < j\.max_attempts"),
    change("release_parked: not the last attempt", "release_parked", r"j\.attempts < j\.max_attempts", "j.attempts + 1 < j.max_attempts"),
    change("release_parked: still waits", "release_parked", r"run_after   = clock_timestamp\(\)", "run_after = j.run_after"),
    drop("undo_requeue: whatever the time", "undo_requeue", r"\n\s+AND j\.run_after = :since::timestamptz"),
    drop("undo_requeue: whatever the limit", "undo_requeue", r"\n\s+AND j\.max_attempts = greatest.*?\+ 1\)"),
    drop("undo_requeue: to any status", "undo_requeue", r"\n\s+AND :status::text IN \(.*?\)"),
    drop("undo_requeue: what nobody requeued", "undo_requeue", r"\n\s+AND EXISTS \([\s\S]*?:status::text\)"),
    *(drop(f"undo_requeue: {what}", "undo_requeue", guard) for what, guard in (
        ("a requeue of any job", r"r\.job_id = j\.id\n\s+AND "),
        ("whatever was done", r"\n\s+AND r\.event = 'requeued'"),
        ("a requeue of any attempt", r"\n\s+AND r\.attempt = j\.attempts"),
        ("a requeue from any status", r"\n\s+AND r\.seen ->> 'status' = :status::text(?=\))"),
    )),
    change("undo_requeue: back to Processing", "undo_requeue", r"CASE WHEN :status::text = 'Processing' THEN 'Stuck' ELSE :status::text END", ":status::text"),
    change("undo_requeue: the attempt stays granted", "undo_requeue", r"max_attempts = :max_attempts::integer,", "max_attempts = j.max_attempts,"),
    change("undo_requeue: Failed and not finished", "undo_requeue", r"WHEN :status::text = 'Failed' THEN clock", "WHEN false THEN clock"),
    change("undo_requeue: finished whatever it was", "undo_requeue", r"WHEN :status::text = 'Failed' THEN clock", "WHEN true THEN clock"),
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
