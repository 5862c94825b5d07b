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
        *(
            "lockowner",
            "processedby",
            "runnerid",
            "ownerid",
            "lockedbyworker",
            "pickedby",
            "assignedworker",
            "workername",
        ),
    ),
    "lease_until": (
        *("leaseuntil", "lockeduntil", "leaseexpiresat", "lockexpiresat", "claimexpiresat", "expiresat", "lockuntil"),
        *(
            "expireat",
            "leaseexpiry",
            "leasedeadline",
            "claimeduntil",
            "reserveduntil",
            "leasedeuntil",
            "leaseduntil",
            "lease",
        ),
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
TWO_EDGED = frozenset({"available", "active", "claimed", "locked", "picked", "started", "ready", "open", "created"})
SETTABLE = {*NAMES, "lease", "workers", "time_zone", "ignore", "epoch", *(state.value for state in STATES)}
INSTANTS = ("lease_until", "locked_at", "heartbeat_at", "failed_at", "created_at", "run_after", "finished_at")
TICKS = {"seconds": 1, "milliseconds": 1000}
NONE = "none"
"""Told of a field: the table has none."""
_LEASE_LIKE = re.compile(r"(lease|(?<!b)lock|claim|reserv|visib|held|hold|taken).*(until|till|expir|deadline|end)")
_BEAT_LIKE = re.compile(r"heartbeat|lastbeat|lastseen|alive|(?<!p)renewed")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_OVER = re.compile(
    r"(?:is|was|has)?(?:st|stat|status|state|done|complete|completed|completion|finish|finished|cancel|cancell?ed|success|"
    r"successful|succeeded|results?|outcome|progress|flags?|verdict|ack|acked|acknowledged|settled?|settlement|charged?|"
    r"captured?|processed|paid|sent|delivered|archived?|deleted?|resolved|receipt|handled|closed|confirmed|confirmation|"
    r"ended|paused?|abandoned|superseded|void|voided|refunded|published|exported|shipped|exit|output|responses?|txhash)"
    r"(?:at|on|by|date|time)?"
)
_OF_SOMETHING = frozenset(
    {"to", "count", "amount", "url", "fee", "total", "address", "reason", "note", "type", "name", "descriptor", "email"}
)
HARMLESS = re.compile(
    r"payload|body|data|args|arguments|params|parameters|input|message|content|request|metadata|meta|context|headers|"
    r"options|config|tags|labels|priority|prio|weight|position|rank|order|orderno|ordernumber|queue|queuename|topic|"
    r"channel|class|classname|jobclass|method|function|name|title|description|comment|note|notes|email|url|uri|path|"
    r"command|cmd|recipient|subject|template|shard|bits|handler|filename|customer|user|username|tenant|account|createdby|submittedby|insertedby|currency|lockversion|rowversion|"
    r"version|cron|schedule|timezone|locale|language|attemptsleft|timeout|timeouts|ttl|backoff|uniquekey|hash|checksum"
)
"""What says nothing about how far a job is, by its plain name."""
_AHEAD = frozenset(
    {"next", "due", "deadline", "scheduled", "expire", "expires", "expiry", "valid", "visible", "timeout"}
)


def plain(name: str) -> str:
    """A name without case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_instant(name: str) -> bool:
    """Whether a number of that name may be an instant, as seconds or milliseconds since 1970."""
    told = plain(name)
    return any(told in NAMES[one] for one in INSTANTS) or is_until(name) or is_beat(name) or told.endswith(("at", "ts"))


def words(name: str) -> list[str]:
    """The words of a name: finishedAt and finished_at have the same two."""
    return [word.lower() for word in _WORD.findall(name)]


def says_over(name: str) -> bool:
    """Whether a column of that name may say that a job is over, or not to be run."""
    told = words(name)
    of_something = bool(told) and (told[-1] in _OF_SOMETHING or told[-2:] == ["state", "code"])
    return "on" not in told[:-1] and not of_something and any(map(_OVER.fullmatch, told))


def is_ahead(name: str) -> bool:
    """Whether an instant of that name lies ahead by its nature, and is no sign of life."""
    return not _AHEAD.isdisjoint(words(name)) and "last" not in words(name)


def is_until(name: str) -> bool:
    """Whether an instant of that name may say until when a lease lasts."""
    return plain(name) in NAMES["lease_until"] or _LEASE_LIKE.search(plain(name)) is not None


def is_beat(name: str) -> bool:
    """Whether an instant of that name may say when a worker was last alive."""
    return plain(name) in NAMES["heartbeat_at"] or _BEAT_LIKE.search(plain(name)) is not None or "ping" in words(name)
