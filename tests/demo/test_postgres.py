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

import psycopg
import pytest

from leasetop.demo import postgres
from leasetop.demo.postgres import DemoError, EmbeddedPostgres
from tests.conftest import SETTINGS
from tests.waiting import gone, until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="shows what root must not do")


@pytest.fixture
def place(short_directory: Path) -> Iterator[Path]:
    """A directory that is not there yet."""
    path = short_directory / f"d{os.getpid()}-{time.monotonic_ns() % 10**9}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


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
    environment = Path(sys.prefix)
    before = modes(place.parent), modes(environment), Path("/etc/passwd").read_bytes()
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
    assert (modes(place.parent), modes(environment), Path("/etc/passwd").read_bytes()) == before


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
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedPostgres(place, SETTINGS) as server:
        answer(server, "CREATE TABLE kept ()")
    monkeypatch.setenv("SUDO_UID", str(pwd.getpwnam("nobody").pw_uid))
    with EmbeddedPostgres(place, SETTINGS) as server:
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
    with pytest.raises(DemoError, match="cannot enter"):
        EmbeddedPostgres(closed / "demo").start()
    assert list(closed.iterdir()) == []
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_data_is_kept_between_runs_and_dropped_by_fresh(place: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS) as server:
        answer(server, "CREATE TABLE kept ()")
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server, "SELECT to_regclass('kept')::text") == "kept"
    server = EmbeddedPostgres(place, SETTINGS)
    server.start(fresh=True)
    assert answer(server, "SELECT to_regclass('kept')::text") is None
    server.stop()


def test_a_second_demo_on_the_same_directory_is_refused_with_the_pid_of_the_first(place: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS) as server:
        with pytest.raises(DemoError, match=rf"another demo \(pid {os.getpid()}\)"):
            EmbeddedPostgres(place, SETTINGS).start(fresh=True)
        assert answer(server) == 1


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


def test_data_of_another_version_is_refused(place: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS):
        pass
    (place / "data" / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(DemoError, match=r"is of PostgreSQL 9\.6.*--fresh"):
        EmbeddedPostgres(place, SETTINGS).start()


def test_data_that_is_no_cluster_is_left_alone_without_fresh(place: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS):
        pass
    (place / "data" / "PG_VERSION").unlink()
    with pytest.raises(DemoError, match=r"unknown version.*--fresh"):
        EmbeddedPostgres(place, SETTINGS).start()
    assert (place / "data" / "base").is_dir()


def test_a_server_that_cannot_start_says_why(place: Path) -> None:
    with pytest.raises(DemoError, match="shared_buffers"):
        EmbeddedPostgres(place, {"shared_buffers": "nonsense"}).start()


def test_a_server_that_cannot_start_does_not_repeat_what_the_last_run_complained_of(place: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
    with server.log.open("a") as log:
        log.write("FATAL:  an old story\n")
    (place / "data" / "global" / "pg_control").unlink()
    with pytest.raises(DemoError, match="pg_control"):
        EmbeddedPostgres(place, SETTINGS).start()


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


def test_the_server_is_gone_when_its_parent_is_killed(place: Path) -> None:
    parent, pid, keeper = started(place)
    parent.kill()
    parent.wait()
    until(lambda: gone(pid) and gone(keeper))
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1


def test_a_start_right_after_a_kill_waits_for_the_old_server_to_end(place: Path) -> None:
    parent, _, _ = started(place)
    parent.kill()
    parent.wait()
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1


def test_an_orphaned_server_is_ended_by_the_next_start(place: Path) -> None:
    parent, pid, keeper = started(place)
    os.kill(keeper, signal.SIGKILL)
    parent.kill()
    parent.wait()
    assert not gone(pid)
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1
        assert server.pid != pid
    until(lambda: gone(pid))


def test_the_server_of_a_killed_keeper_is_ended_by_stop(place: Path) -> None:
    server = EmbeddedPostgres(place, SETTINGS)
    server.start()
    assert server._keeper is not None
    server._keeper.kill()
    server._keeper.wait()
    with pytest.raises(DemoError, match="keeper was killed"):
        server.restart()
    server.stop()
    until(lambda: gone(server.pid))


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_keeps_what_was_committed(place: Path, immediate: bool) -> None:
    with EmbeddedPostgres(place) as server:
        before = server.pid
        answer(server, "CREATE TABLE kept ()")
        server.restart(immediate)
        assert server.pid != before
        assert answer(server, "SELECT to_regclass('kept')::text") == "kept"


@as_root
def test_the_servers_user_can_put_no_links_in_our_way(place: Path, short_directory: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS) as server:
        user = server._account
    assert user is not None
    for attempt in ('touch "$1/x"', 'mv "$1/run" "$1/gone"', 'rm -f "$1/log"', 'ln -s /etc/passwd "$1/data.half"'):
        done = postgres._as(user, ["/bin/sh", "-c", attempt, "sh", str(place)])
        assert done.returncode != 0, attempt
    with EmbeddedPostgres(place, SETTINGS) as server:
        assert answer(server) == 1


@as_root
def test_a_directory_of_another_user_is_refused_to_root(place: Path) -> None:
    with EmbeddedPostgres(place, SETTINGS):
        pass
    os.chown(place, 65534, 65534)
    with pytest.raises(DemoError, match="belongs to another user"):
        EmbeddedPostgres(place, SETTINGS).start()
    assert place.stat().st_uid == 65534
