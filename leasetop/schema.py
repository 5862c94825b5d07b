"""The home table: made by `leasetop init`, and refused where another table has its name.

Knows `sql/schema.sql`, `sql/roles.sql`, and how to tell a `payment_jobs` of ours from one that is not.
"""

import psycopg

from leasetop import statements
from leasetop.errors import Refused

# Without these the protocol's statements cannot run; a column more does no harm.
_COLUMNS = (
    *("id", "kind", "idempotency_key", "amount", "currency", "payload", "status", "stage", "lease_owner"),
    *("lease_until", "lease_ttl", "claimed_at", "heartbeats", "attempts", "max_attempts", "run_after"),
    *("created_at", "finished_at", "last_error"),
)

_FOUND = """
    SELECT to_regclass('payment_jobs')::text AS name, c.relkind::text AS kind,
           array(SELECT attname::text FROM pg_attribute
                  WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns
      FROM pg_class c
     WHERE c.oid = to_regclass('payment_jobs')
"""


def apply(connection: psycopg.Connection) -> bool:
    """Creates what is missing, in one transaction. True: the home table is new.

    Raises Refused where `payment_jobs` exists and is not ours; then nothing was changed. psycopg's errors pass.
    """
    with connection.transaction():
        # Two `init` at once would race between IF NOT EXISTS and CREATE. The lock goes with the transaction.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('leasetop init'))")
        found = connection.execute(_FOUND).fetchone()
        if found is not None:
            _, kind, columns = found
            missing = [name for name in _COLUMNS if name not in columns]
            if kind not in ("r", "p"):
                raise Refused("payment_jobs exists and is no table: leasetop init leaves it alone")
            if missing:
                raise Refused(
                    "payment_jobs exists and is not leasetop's (it has no column "
                    f"{', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}): nothing was changed. "
                    "Use another database or schema (PGOPTIONS='-c search_path=...')"
                )
        connection.execute(statements.text("schema").encode())
        return found is None


def apply_roles(connection: psycopg.Connection) -> None:
    """Makes the group roles that are missing, and gives them what they need. psycopg's errors pass."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('leasetop init'))")
        connection.execute(statements.text("roles").encode())
