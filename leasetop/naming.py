"""What people call things in their tables: the names of columns, and the words of a status.

Names are compared without case and punctuation (`plain`). What they lead to is in guess.py.
"""

import re
from collections.abc import Mapping

from leasetop.errors import LeasetopError
from leasetop.model import State


class MappingError(LeasetopError):
    """A table that cannot be understood without help: says what is missing and how to give it."""


# Canonical field -> the names that people give it, the likeliest first; case and punctuation do not count.
NAMES: Mapping[str, tuple[str, ...]] = {
    "status": ("status", "state", "jobstatus", "jobstate", "statuscode"),
    "owner": (
        *("leaseowner", "lockedby", "workerid", "worker", "claimedby", "takenby", "owner", "leaseholder", "holder"),
        *("lockowner", "processedby", "runnerid", "ownerid", "lockedbyworker", "pickedby"),
    ),
    "lease_until": (
        *("leaseuntil", "lockeduntil", "leaseexpiresat", "lockexpiresat", "claimexpiresat", "expiresat", "lockuntil"),
        *("leaseexpiry", "leasedeadline", "claimeduntil", "reserveduntil", "leasedeuntil", "leaseduntil", "lease"),
    ),
    "locked_at": ("lockedat", "claimedat", "pickedat", "leasedat", "reservedat", "startedat", "lockedon"),
    "heartbeat_at": (
        *("heartbeatat", "lastheartbeat", "lastheartbeatat", "heartbeat", "lastseen", "lastseenat", "renewedat"),
        *("lastping", "pingedat", "aliveat", "lastalive"),
    ),
    "attempts": (
        *("attempts", "attempt", "tries", "trialcount", "trycount", "retrycount", "retries", "attemptcount"),
        *("numattempts", "attemptno", "attemptsmade"),
    ),
    "max_attempts": ("maxattempts", "maxtries", "maxretries", "attemptlimit", "retrylimit"),
    "error": ("lasterror", "error", "errortext", "errormessage", "failurereason", "lastfailure", "errormsg"),
    "stage": ("stage", "step", "phase"),
    "kind": ("kind", "type", "jobtype", "taskname", "task", "jobname", "queue", "handler"),
    "created_at": ("createdat", "insertedat", "enqueuedat", "created", "queuedat", "submittedat", "createdon"),
    "run_after": ("runafter", "runat", "scheduledat", "availableat", "nextrunat", "notbefore", "scheduledfor"),
    "finished_at": ("finishedat", "completedat", "doneat", "endedat", "processedat"),
    "failed_at": ("failedat", "diedat", "deadat"),
    "done": (
        *("done", "completed", "complete", "finished", "processed", "isdone", "iscompleted", "iscomplete"),
        *("isfinished", "isprocessed"),
    ),
    "idempotency_key": ("idempotencykey", "idemkey", "dedupkey", "idempotencytoken", "requestid"),
    "payload": ("payload", "body", "data", "args", "arguments", "params", "jobdata", "input", "message", "content"),
    "amount": ("amount", "total", "amountminor", "amountcents"),
}
STATES: Mapping[State, tuple[str, ...]] = {
    State.PENDING: ("pending", "queued", "ready", "new", "waiting", "available", "todo", "enqueued", "created", "open"),
    State.PROCESSING: (
        *("processing", "running", "inprogress", "claimed", "locked", "active", "started", "executing", "doing"),
        *("picked", "leased", "working"),
    ),
    State.STUCK: ("stuck", "parked", "stalled", "onhold"),
    State.COMPLETED: ("completed", "complete", "done", "succeeded", "success", "finished", "successful", "paid", "ok"),
    State.FAILED: ("failed", "dead", "error", "errored", "exhausted", "failure"),
    State.CANCELLED: ("cancelled", "canceled", "aborted", "discarded"),
}
# leasetop's own words: a table whose words are all among them speaks its language.
OURS = frozenset({"Pending", "Processing", "Stuck", "Completed", "Failed", "Cancelled"})
# Of these words some people mean another state: "active" is done where something was to be activated.
TWO_EDGED = frozenset({"active", "claimed", "locked", "picked", "started", "ready", "open", "created"})
SETTABLE = {*NAMES, "lease", "workers", "time_zone", "ignore", "epoch", *(state.value for state in STATES)}
INSTANTS = ("lease_until", "locked_at", "heartbeat_at", "failed_at", "created_at", "run_after", "finished_at")
TICKS = {"seconds": 1, "milliseconds": 1000}
NONE = "none"
"""Told of a field: the table has none."""
_LEASE_LIKE = re.compile(r"(lease|lock|claim|reserv|visib|held|hold|taken).*(until|till|expir|deadline|end)")
_BEAT_LIKE = re.compile(r"heartbeat|lastbeat|lastseen|alive|ping|renewed")
STATUS_LIKE = re.compile(r"^st$|stat(e|us)|done|complet|finish|cancel|success|succeed|result|outcome|progress|flag")
END_LIKE = re.compile(
    r"delet|cancel|paus|abandon|supersed|void|refund|ack|settle|charg|captur|process|paid|sent|deliver|archiv|delet|resolv|receipt|handled|closed|confirm|(?<!ext)ended"
)
"""A column that is called so may say that a job is over, or not to be run."""
HARMLESS = re.compile(
    r"payload|body|data|args|arguments|params|parameters|input|message|content|request|metadata|meta|context|headers|"
    r"options|config|tags|labels|priority|prio|weight|position|rank|order|orderno|ordernumber|queue|queuename|topic|"
    r"channel|class|classname|jobclass|method|function|name|title|description|comment|note|notes|email|url|uri|path|"
    r"filename|customer|user|username|tenant|account|createdby|submittedby|insertedby|currency|lockversion|rowversion|"
    r"version|cron|schedule|timezone|locale|language|attemptsleft|timeout|timeouts|ttl|backoff|uniquekey|hash|checksum"
)
"""What says nothing about how far a job is, by its plain name."""
AHEAD = re.compile(r"next|due|deadline|schedul|retry|expire|valid|notbefore|runat|visible")
"""An instant that is called so lies ahead by its nature, and is no sign of life."""


def plain(name: str) -> str:
    """A name without case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_instant(name: str) -> bool:
    """Whether a number of that name may be an instant, as seconds or milliseconds since 1970."""
    told = plain(name)
    return any(told in NAMES[one] for one in INSTANTS) or is_until(name) or is_beat(name) or told.endswith(("at", "ts"))


def is_until(name: str) -> bool:
    """Whether an instant of that name may say until when a lease lasts."""
    return plain(name) in NAMES["lease_until"] or _LEASE_LIKE.search(plain(name)) is not None


def is_beat(name: str) -> bool:
    """Whether an instant of that name may say when a worker was last alive."""
    return plain(name) in NAMES["heartbeat_at"] or _BEAT_LIKE.search(plain(name)) is not None
