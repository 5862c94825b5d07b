"""The embedded PostgreSQL: reachable by its owner only, gone with its parent, and careful with what is not its own."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasetop.demo import postgres
from leasetop.demo.postgres import DemoError, EmbeddedPostgres
from tests.conftest import SETTINGS
from tests.waiting import gone, until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="shows what root must not do")

# A machine may be busy; what never comes about takes this long to say so.
_PATIENCE_S = 60.0


@pytest.fixture
def place(short_directory: Path) -> Iterator[Path]:
    """A directory that is not there yet."""
    path = short_directory / f"d{os.getpid()}-{time.monotonic_ns() % 10**9}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(short_directory: Path) -> Path:
    """The directory of a demo that has ended; to be copied, since a copy is made sooner than a cluster."""
    path = short_directory / "cluster"
    with EmbeddedPostgres(path, SETTINGS):
        pass
    return path


@pytest.fixture
def used(place: Path, cluster: Path) -> Path:
    """A directory with the data of an earlier run."""
    # As root the owners count, and shutil does not keep them.
    subprocess.run(["cp", "-a", cluster, place], check=True)
    return place


def answer(server: EmbeddedPostgres, question: str = "SELECT 1") -> object:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]


def modes(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode and owner of a path and all above it."""
    return {one: (one.stat().st_mode, one.stat().st_uid, one.stat().st_gid) for one in (path, *path.parents)}


def test_it_answers_on_a_socket_that_only_its_owner_can_enter(place: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
        assert answer(server, "SHOW listen_addresses") == ""
        for directory in (place / "run", place / "data"):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
        # As root the server's user must be able to pass through, and may do nothing else there.
        assert stat.S_IMODE(place.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)
        assert place.stat().st_uid == os.geteuid()


def test_nothing_above_its_directory_or_in_the_environment_is_changed(place: Path) -> None:
    # The deepest file of the environment that is used: site-packages and all above are among its parents.
    binary = postgres._binary(postgres._wheel(), "postgres")
    assert "site-packages" in binary.parts or "dist-packages" in binary.parts

    def outside() -> tuple[object, ...]:
        return modes(place.parent), modes(binary), modes(Path(sys.prefix)), Path("/etc/passwd").read_bytes()

    before = outside()
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
        assert outside() == before
    assert outside() == before


_ORDINARY = """
import os, sys
from pathlib import Path
import psycopg
from leasetop.demo.postgres import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1])) as server, psycopg.connect(server.dsn()) as connection:
    print(os.geteuid(), *connection.execute("SELECT current_user").fetchone())
"""


@as_root
def test_an_ordinary_user_needs_no_root_and_no_copy(place: Path) -> None:
    user = pwd.getpwnam("nobody")
    as_user: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    postgres_there = f"import os, sys, leasetop; sys.exit(not os.access({str(postgres._wheel())!r}, os.R_OK | os.X_OK))"
    try:
        reached = subprocess.run([sys.executable, "-c", postgres_there], capture_output=True, **as_user)
    except OSError as error:
        pytest.skip(f"nobody cannot run this Python: {error}")
    if reached.returncode != 0:
        pytest.skip("this environment is closed to other users")
    place.mkdir(mode=0o755)
    os.chown(place, user.pw_uid, user.pw_gid)
    done = subprocess.run([sys.executable, "-c", _ORDINARY, place], capture_output=True, text=True, **as_user)
    assert (done.stdout, done.stderr) == (f"{user.pw_uid} postgres\n", "")
    assert not (place / "binaries").exists()
    assert stat.S_IMODE((place / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "run").stat().st_mode) == 0o700


@as_root
def test_it_runs_from_a_copy_where_its_user_cannot_reach_the_environment(
    place: Path, short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, closed = postgres._wheel(), short_directory / "closed"
    closed.mkdir(mode=0o700)
    unused = shutil.ignore_patterns("pginstall", "include")
    for name in (wheel.name, f"{wheel.name}.libs"):
        shutil.copytree(wheel.parent / name, closed / name, symlinks=True, ignore=unused)
    monkeypatch.setattr(postgres, "_wheel", lambda: closed / wheel.name)
    for half_finished in ("binaries", "binaries.half"):
        (place / half_finished / wheel.name).mkdir(parents=True)
    (place / postgres._MARKER).touch()
    place.chmod(0o755)
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
        assert str(place) in str(server.bin("postgres"))
    copied = (place / "binaries").stat().st_ino
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
    assert (place / "binaries").stat().st_ino == copied
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    shutil.rmtree(closed)


@as_root
def test_an_empty_directory_that_was_there_before_keeps_its_owner_and_mode(place: Path) -> None:
    place.mkdir(mode=0o755)
    before = modes(place)
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
    assert modes(place) == before


@as_root
def test_another_account_behind_sudo_goes_on_with_the_data_of_the_first(
    used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedPostgres(used, SETTINGS) as server:
        answer(server, "CREATE TABLE kept ()")
    monkeypatch.setenv("SUDO_UID", str(pwd.getpwnam("nobody").pw_uid))
    with EmbeddedPostgres(used, SETTINGS) as server:
        assert answer(server, "SELECT to_regclass('kept')::text") == "kept"


@as_root
def test_roots_own_directory_is_used_only_where_the_servers_user_can_enter_it(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = short_directory / "home"
    home.mkdir(mode=0o755)
    monkeypatch.setattr(postgres.platformdirs, "user_data_path", lambda _: home / "share" / "leasetop")
    assert postgres.default_directory() == home / "share" / "leasetop" / "demo"
    home.chmod(0o700)
    assert postgres.default_directory() == Path("/var/lib/leasetop/demo")


@as_root
def test_it_refuses_a_place_that_its_user_cannot_enter(short_directory: Path) -> None:
    closed = short_directory / "private"
    closed.mkdir(mode=0o700)
    with pytest.raises(DemoError, match="cannot enter") as refusal:
        EmbeddedPostgres(closed / "demo").start()
    assert "\n" not in str(refusal.value)
    assert "--dir" in str(refusal.value)
    assert list(closed.iterdir()) == []
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_data_is_kept_between_runs_and_dropped_by_fresh(used: Path) -> None:
    with EmbeddedPostgres(used, SETTINGS) as server:
        answer(server, "CREATE TABLE kept ()")
    with EmbeddedPostgres(used, SETTINGS) as server:
        assert answer(server, "SELECT to_regclass('kept')::text") == "kept"
    server = EmbeddedPostgres(used, SETTINGS)
    server.start(fresh=True)
    assert answer(server, "SELECT to_regclass('kept')::text") is None
    server.stop()


def test_a_path_too_long_for_a_socket_is_refused(short_directory: Path) -> None:
    with pytest.raises(DemoError, match="too long for a unix socket"):
        EmbeddedPostgres(short_directory / ("x" * 100)).start()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_directory_of_somebody_else_is_left_alone(place: Path, fresh: bool) -> None:
    (place / "data").mkdir(parents=True)
    (place / "data" / "precious").write_text("mine")
    with pytest.raises(DemoError, match="it is left alone"):
        EmbeddedPostgres(place).start(fresh=fresh)
    assert (place / "data" / "precious").read_text() == "mine"


def test_a_path_that_libpq_would_take_for_two_hosts_is_refused(short_directory: Path) -> None:
    with pytest.raises(DemoError, match="comma"):
        EmbeddedPostgres(short_directory / "a,b").start()
    assert not (short_directory / "a,b").exists()


def test_a_path_with_blanks_and_quotes_is_quoted(place: Path) -> None:
    with EmbeddedPostgres(place / "it's here", SETTINGS) as server:
        assert answer(server) == 1


def test_without_the_binaries_it_says_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_PACKAGE", "no_such_package")
    with pytest.raises(DemoError, match=r"pip install 'leasetop\[demo\]'"):
        EmbeddedPostgres(place).start()


def test_a_file_in_its_place_is_refused(place: Path) -> None:
    place.write_text("")
    with pytest.raises(DemoError, match="is no directory"):
        EmbeddedPostgres(place).start()
    place.unlink()


def test_data_of_another_version_is_refused(used: Path) -> None:
    (used / "data" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(DemoError, match=r"is of PostgreSQL 9\.6.*--fresh"):
        EmbeddedPostgres(used, SETTINGS).start()


def test_data_that_is_no_cluster_is_left_alone_without_fresh(used: Path) -> None:
    (used / "data" / "PG_VERSION").unlink()
    with pytest.raises(DemoError, match=r"unknown version.*--fresh"):
        EmbeddedPostgres(used, SETTINGS).start()
    assert (used / "data" / "base").is_dir()


def test_a_server_that_cannot_start_says_why(used: Path) -> None:
    with pytest.raises(DemoError, match="shared_buffers"):
        EmbeddedPostgres(used, {"shared_buffers": "nonsense"}).start()


def test_a_server_that_cannot_start_does_not_repeat_what_the_last_run_complained_of(used: Path) -> None:
    with EmbeddedPostgres(used, SETTINGS) as server:
        assert answer(server) == 1
    with server.log.open("a") as log:
        log.write("FATAL:  an old story\n")
    (used / "data" / "global" / "pg_control").unlink()
    with pytest.raises(DemoError, match="pg_control"):
        EmbeddedPostgres(used, SETTINGS).start()


def test_the_reason_is_told_and_not_the_tidying_up_after_it() -> None:
    told = "initdb: error: could not write: No space left on device\ninitdb: removing contents of data directory"
    assert postgres._complaints(told)[0] == "initdb: error: could not write: No space left on device"


_PARENT = """
import sys, time
from pathlib import Path
from leasetop.demo.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
print(server.pid, server._keeper.pid, flush=True)
time.sleep(600)
"""


def started(place: Path) -> tuple["subprocess.Popen[str]", int, int]:
    """Another process with a server: it, the server's pid, the keeper's."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, place], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, keeper = map(int, parent.stdout.readline().split())
    parent.stdout.close()
    return parent, pid, keeper


def test_a_second_demo_on_the_same_directory_is_refused_with_the_pid_of_the_first(used: Path) -> None:
    parent, pid, _ = started(used)
    try:
        for fresh in (False, True):
            with pytest.raises(DemoError, match=rf"another demo \(pid {parent.pid}\)"):
                EmbeddedPostgres(used, SETTINGS).start(fresh=fresh)
        assert answer(EmbeddedPostgres(used)) == 1
        assert not gone(pid)
    finally:
        parent.kill()
        parent.wait()


def test_the_server_is_gone_when_its_parent_is_killed(used: Path) -> None:
    parent, pid, keeper = started(used)
    parent.kill()
    parent.wait()
    until(lambda: gone(pid) and gone(keeper), _PATIENCE_S)
    with EmbeddedPostgres(used, SETTINGS) as server:
        assert answer(server) == 1


def test_a_start_right_after_a_kill_waits_for_the_old_server_to_end(used: Path) -> None:
    parent, _, _ = started(used)
    parent.kill()
    parent.wait()
    with EmbeddedPostgres(used, SETTINGS) as server:
        assert answer(server) == 1


def test_an_orphaned_server_is_ended_by_the_next_start(used: Path) -> None:
    parent, pid, keeper = started(used)
    os.kill(keeper, signal.SIGKILL)
    parent.kill()
    parent.wait()
    assert not gone(pid)
    with EmbeddedPostgres(used, SETTINGS) as server:
        assert answer(server) == 1
        assert server.pid != pid
    until(lambda: gone(pid), _PATIENCE_S)


def test_the_server_of_a_killed_keeper_is_ended_by_stop(used: Path) -> None:
    server = EmbeddedPostgres(used, SETTINGS)
    server.start()
    assert server._keeper is not None
    server._keeper.kill()
    server._keeper.wait()
    with pytest.raises(DemoError, match="keeper was killed"):
        server.restart()
    killed = server.pid
    server.stop()
    until(lambda: gone(killed), _PATIENCE_S)
    with server:
        assert answer(server) == 1
        assert server.pid != killed


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_keeps_what_was_committed(used: Path, immediate: bool) -> None:
    # Of SETTINGS only this one: without synchronous_commit a commit may be lost, and that would be as told.
    with EmbeddedPostgres(used, {"fsync": "off"}) as server:
        before = server.pid
        answer(server, "CREATE TABLE kept ()")
        server.restart(immediate)
        assert server.pid != before
        assert answer(server, "SELECT to_regclass('kept')::text") == "kept"


@as_root
def test_the_servers_user_can_put_no_links_in_our_way(used: Path, short_directory: Path) -> None:
    with EmbeddedPostgres(used, SETTINGS) as server:
        user = server._account
    assert user is not None
    for attempt in ('touch "$1/x"', 'mv "$1/run" "$1/gone"', 'rm -f "$1/log"', 'ln -s /etc/passwd "$1/data.half"'):
        done = postgres._as(user, ["/bin/sh", "-c", attempt, "sh", str(used)])
        assert done.returncode != 0, attempt
    with EmbeddedPostgres(used, SETTINGS) as server:
        assert answer(server) == 1


@as_root
def test_a_directory_of_another_user_is_refused_to_root(used: Path) -> None:
    os.chown(used, 65534, 65534)
    with pytest.raises(DemoError, match="belongs to another user"):
        EmbeddedPostgres(used, SETTINGS).start()
    assert used.stat().st_uid == 65534
