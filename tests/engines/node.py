"""Node and the job queues made for it, in versions that these tests know: `python -m tests.engines.node` installs them.

They go to $LEASETOP_ENGINES/node and nowhere else; where that is missing, the tests are skipped and say so.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.waiting import until

# node too: pg-boss 12 and graphile-worker 0.18 need a newer one than distributions have.
VERSIONS = {"node": "22.23.3", "pg-boss": "12.38.0", "graphile-worker": "0.18.0"}
_DRIVERS = Path(__file__).parent
_PATIENCE = 30.0


def home() -> Path | None:
    """Where the packages are, or are to be; None where nobody has said it."""
    named = os.environ.get("LEASETOP_ENGINES")
    return Path(named).resolve() / "node" if named else None


def executable() -> Path:
    """The node that runs the drivers."""
    directory = home()
    assert directory is not None
    return directory / "node_modules" / "node" / "bin" / "node"


def missing() -> str | None:
    """Why the engines cannot run here, for pytest's report; None where they can."""
    directory = home()
    if directory is None:
        return "LEASETOP_ENGINES is not set: it names the directory where the engines are installed"
    lacks = [name for name, version in VERSIONS.items() if _installed(directory, name) != version]
    if not lacks:
        return None
    return f"no {', '.join(f'{name} {VERSIONS[name]}' for name in lacks)} in {directory}: python -m tests.engines.node"


def _installed(directory: Path, name: str) -> str | None:
    if name == "node":
        # The package is a shell; its binary comes with a script of its own, which may have been forbidden.
        return _version_of_node()
    manifest = directory / "node_modules" / name / "package.json"
    return json.loads(manifest.read_text())["version"] if manifest.is_file() else None


def _version_of_node() -> str | None:
    try:
        said = subprocess.run([executable(), "--version"], capture_output=True, text=True, timeout=_PATIENCE)
    except OSError:
        return None
    return said.stdout.strip().removeprefix("v") or None


def install() -> None:
    """Installs what is missing; does nothing where all is there."""
    directory = home()
    if directory is None:
        sys.exit("set LEASETOP_ENGINES to the directory where the engines are to be installed")
    if missing() is None:
        print(f"all there: {directory}")
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is needed to install the engines; any version will do")
    directory.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}@{version}" for name, version in VERSIONS.items()]
    flags = ["--save-exact", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run([npm, "install", "--prefix", directory, *flags, *wanted], cwd=directory, check=True)
    left = missing()
    if left:
        sys.exit(left)


class Driver:
    """A driver that runs: what it said so far, and its end."""

    def __init__(self, engine: str, dsn: str, *arguments: object) -> None:
        self.said: list[list[str]] = []
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            [executable(), _DRIVERS / f"{engine}.mjs", *map(str, arguments)],
            env=_environment(dsn),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._listen, self._log)]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.split())

    def _log(self) -> None:
        assert self._process.stderr is not None
        self._errors += self._process.stderr

    def await_running(self) -> list[str]:
        """What it said of the first job that it runs: the id, and more where the engine tells more."""
        until(lambda: self.said or self._process.poll() is not None, _PATIENCE)
        assert self.said and self.said[0][0] == "running", (self.said, self._errors)
        return self.said[0][1:]

    def go_on(self) -> None:
        """Lets a handler that waits finish."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL: the worker writes nothing down any more."""
        self._process.kill()
        self._process.wait(_PATIENCE)

    def end(self) -> list[str]:
        """Waits until it has ended, well; the last word of each line that it said."""
        status = self._process.wait(_PATIENCE)
        for reader in self._readers:
            reader.join(5)
        assert status == 0, self._errors
        return [words[-1] for words in self.said]

    def close(self) -> None:
        """Whatever state it is in."""
        if self._process.poll() is None:
            self.kill()
        for reader in self._readers:
            reader.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def _environment(dsn: str) -> dict[str, str]:
    """libpq's variables, which node's client reads as well, and where the packages are, as an absolute path."""
    directory = home()
    assert directory is not None
    given = conninfo_to_dict(dsn)
    names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGDATABASE": "dbname"}
    found = {variable: str(given[name]) for variable, name in names.items() if given.get(name)}
    return dict(os.environ) | found | {"LEASETOP_ENGINES": str(directory.parent)}


@contextmanager
def driving(engine: str, dsn: str, *arguments: object) -> Iterator[Driver]:
    """A driver that does not outlive the block."""
    made = Driver(engine, dsn, *arguments)
    try:
        yield made
    finally:
        made.close()


def run(engine: str, dsn: str, *arguments: object) -> list[str]:
    """A driver's subcommand from begin to end; the last word of each line that it said."""
    with driving(engine, dsn, *arguments) as driver:
        return driver.end()


if __name__ == "__main__":
    install()
