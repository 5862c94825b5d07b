"""Where the engines live: virtual environments of the tests' own, never leasetop's.

The directory is named by LEASETOP_ENGINES; without it the tests of engines are skipped. `python -m
tests.engines.environment` installs what is missing, as often as it is run. LEASETOP_ENGINES_PYTHON names another
interpreter to build them with (Django 6 needs 3.12). An engine that runs on no older Python has an environment apart,
made with the first Python that is new enough: that interpreter, ours, one on the PATH or one of pyenv's.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

VARIABLE = "LEASETOP_ENGINES"
INTERPRETER = "LEASETOP_ENGINES_PYTHON"

_PSYCOPG = "psycopg[binary,pool]==3.3.9"

# Engine -> what pip installs for it; the first is the engine itself.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "procrastinate": ("procrastinate==3.10.0", _PSYCOPG),
    "pgqueuer": ("pgqueuer[asyncpg]==1.6.0",),
    "chancy": ("chancy==0.26.0", _PSYCOPG),
    "absurd": ("absurdctl==0.5.1", "absurd-sdk==0.5.1", _PSYCOPG),
    "pgmq": ("pgmq==1.1.4", _PSYCOPG),
    "django-tasks-db": (
        "django-tasks-db==0.13.0",
        "django==6.1.3; python_version >= '3.12'",
        "django==5.2.19; python_version < '3.12'",
        "django-tasks-db[compat]==0.13.0; python_version < '3.12'",
        _PSYCOPG,
    ),
    "dbos": ("dbos==3.4.0",),
    "quebec": ("quebec==0.4.2",),
    "oban": ("oban==0.7.0", _PSYCOPG),
}

# Engine -> the oldest Python that it runs on, where that is newer than leasetop's.
OLDEST: Mapping[str, tuple[int, int]] = {"oban": (3, 12)}

_VERSIONS = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name.lower(): each.version for each in distributions()}))
"""


def directory(engine: str) -> Path | None:
    """Where the environment of this engine is; None where nobody said."""
    named = os.environ.get(VARIABLE)
    return Path(named).absolute() / (f"python-{engine}" if engine in OLDEST else "python") if named else None


def python(there: Path) -> Path:
    """The interpreter that the engines run in."""
    return there / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def missing(engine: str) -> str | None:
    """Why this engine cannot be tested here; None where it can."""
    there = directory(engine)
    if there is None:
        return f"{VARIABLE} is not set: it names the directory of the engines (python -m tests.engines.environment)"
    wanted, _, version = PACKAGES[engine][0].partition("==")
    name = wanted.partition("[")[0]
    found = _installed(there).get(name)
    if found == version:
        return None
    if not python(there).exists() and base(engine) is None:
        oldest = ".".join(map(str, OLDEST[engine]))
        return f"{name} needs Python {oldest} or newer, and none was found ({INTERPRETER} may name one)"
    return f"{name} {version} is not in {there} ({found or 'not installed'}): python -m tests.engines.environment"


def base(engine: str) -> str | None:
    """The interpreter to make this engine's environment with; None where none is new enough."""
    if engine not in OLDEST:
        return os.environ.get(INTERPRETER, sys.executable)
    return next((each for each in _interpreters() if _version(each) >= OLDEST[engine]), None)


def install() -> list[str]:
    """Makes the environments and installs each engine apart; what could not be installed, and why."""
    complaints = []
    for engine, packages in PACKAGES.items():
        there, reason, made_with = directory(engine), missing(engine), base(engine)
        if reason is None:
            continue
        if there is None or made_with is None:
            complaints.append(reason)
            continue
        print(f"installing {engine}", flush=True)
        command = [str(python(there)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        steps = [command] if python(there).exists() else [[made_with, "-m", "venv", str(there)], command]
        for step in steps:
            done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                complaints.append(f"{engine} could not be installed: {done.stdout.strip()}")
                break
        _installed.cache_clear()
    return complaints


def _interpreters() -> Iterator[str]:
    """Pythons of this machine, those that somebody chose first."""
    if chosen := os.environ.get(INTERPRETER):
        yield chosen
    yield sys.executable
    for name in ("python3.12", "python3.13", "python3.14", "python3"):
        if found := shutil.which(name):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob("versions/3.*/bin/python")))


@cache
def _version(interpreter: str) -> tuple[int, ...]:
    """Its major and minor version; of what does not run, as pyenv's stand-ins may not, nothing."""
    command = [interpreter, "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(map(int, done.stdout.split()))


@cache
def _installed(there: Path) -> Mapping[str, str]:
    if not python(there).exists():
        return {}
    done = subprocess.run([str(python(there)), "-c", _VERSIONS], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main() -> int:
    """Installs, and says what could not be; 0 when all is there. The tests of the others run all the same."""
    named = os.environ.get(VARIABLE)
    if not named:
        print(f"{VARIABLE} is not set: it names the directory to install the engines in", file=sys.stderr)
        return 2
    complaints = install()
    print("\n".join(complaints or [f"all engines are in {named}"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
