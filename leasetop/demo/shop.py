"""The pretend shop: enqueues sample payments, a few at once for the first screen, then at a steady trickle."""

import json
import logging
import os
import random
import secrets
import threading
from datetime import timedelta
from decimal import Decimal

import psycopg

from leasetop import statements
from leasetop.database import connect, in_words
from leasetop.errors import LeasetopError

LOG = logging.getLogger("leasetop.demo.shop")

_KINDS = ("charge", "charge", "charge", "charge", "payout", "refund")
_CURRENCIES = ("EUR", "EUR", "USD", "GBP", "SEK")
_CUSTOMERS = ("Ada", "Grace", "Edgar", "Barbara", "Tony", "Leslie", "Frances", "Niklaus", "Margaret", "Edsger")
# Above this the shop waits: a demo that is left alone with no workers must not fill a disk.
_MOST_WAITING = 300
_OUTAGE_S = 2.0


def payment() -> dict[str, object]:
    """The parameters of sql/enqueue.sql for one plausible payment; its key is unique across runs."""
    order = secrets.token_hex(4)
    return {
        "kind": random.choice(_KINDS),
        "idempotency_key": f"order-{order}",
        "amount": Decimal(random.randint(199, 49_999)).scaleb(-2),
        "currency": random.choice(_CURRENCIES),
        "payload": json.dumps({"order": order, "customer": random.choice(_CUSTOMERS), "card": "tok_demo_visa"}),
        "max_attempts": 5,
        "delay": timedelta(),
    }


def enqueue(connection: psycopg.Connection, number: int) -> None:
    """So many payments at once."""
    with connection.cursor() as cursor:
        cursor.executemany(statements.load("enqueue"), [payment() for _ in range(number)])


class Shop:
    """Enqueues `rate` payments a second until stopped; goes on when the database comes back."""

    def __init__(self, dsn: str, rate: float) -> None:
        self.name = f"shop/{os.getpid()}"
        self._dsn, self._rate = dsn, rate
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends `run` soon."""
        self._stopped.set()

    def run(self) -> None:
        """Until stopped. What goes wrong is said, and tried again: the demo's database may be stopped and started."""
        connection: psycopg.Connection | None = None
        pause, away = 0.0, False
        while not self._stopped.wait(pause):
            pause = random.expovariate(self._rate)
            try:
                if connection is None or connection.closed:
                    connection = connect(self._dsn, "leasetop shop")
                if self._has_room(connection):
                    enqueue(connection, 1)
            except (psycopg.Error, LeasetopError) as error:
                words = in_words(error) if isinstance(error, psycopg.Error) else error
                LOG.warning("cannot enqueue: %s", words, extra={"event": "outage"})
                if connection is not None:
                    connection.close()
                pause, away = _OUTAGE_S, True
                continue
            if away:
                LOG.info("enqueues again", extra={"event": "back"})
                away = False
        if connection is not None:
            connection.close()

    def _has_room(self, connection: psycopg.Connection) -> bool:
        waiting = connection.execute(
            "SELECT count(*) FROM (SELECT FROM payment_jobs WHERE status = 'Pending' LIMIT %s) AS few", [_MOST_WAITING]
        ).fetchone()
        return waiting is not None and waiting[0] < _MOST_WAITING
