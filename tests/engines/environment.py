"""Where the engines live: a virtual environment of the tests' own, never leasetop's.

The directory is named by LEASETOP_ENGINES; without it the tests of engines are skipped. `python -m
tests.engines.environment` installs what is missing, as often as it is run. LEASETOP_ENGINES_PYTHON names another
interpreter to build it with (Django 6 needs 3.12).
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
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
}

_VERSIONS = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name.lower(): each.version for each in distributions()}))
"""


def directory() -> Path | None:
    """Where the environment is; None where nobody said."""
    named = os.environ.get(VARIABLE)
    return Path(named).absolute() / "python" if named else None


def python(there: Path) -> Path:
    """The interpreter that the engines run in."""
    return there / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def missing(engine: str) -> str | None:
    """Why this engine cannot be tested here; None where it can."""
    there = directory()
    if there is None:
        return f"{VARIABLE} is not set: it names the directory of the engines (python -m tests.engines.environment)"
    wanted, _, version = PACKAGES[engine][0].partition("==")
    name = wanted.partition("[")[0]
    found = _installed(there).get(name)
    if found == version:
        return None
    return f"{name} {version} is not in {there} ({found or 'not installed'}): python -m tests.engines.environment"


def install(there: Path) -> list[str]:
    """Makes the environment and installs each engine apart; what could not be installed, and why."""
    if not python(there).exists():
        base = os.environ.get(INTERPRETER, sys.executable)
        subprocess.run([base, "-m", "venv", str(there)], check=True)
    complaints = []
    for engine, packages in PACKAGES.items():
        if missing(engine) is None:
            continue
        print(f"installing {engine}", flush=True)
        command = [str(python(there)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            complaints.append(f"{engine} could not be installed: {done.stdout.strip()}")
        _installed.cache_clear()
    return complaints


@cache
def _installed(there: Path) -> Mapping[str, str]:
    if not python(there).exists():
        return {}
    done = subprocess.run([str(python(there)), "-c", _VERSIONS], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main() -> int:
    """Installs, and says what could not be; 0 when all is there. The tests of the others run all the same."""
    there = directory()
    if there is None:
        print(f"{VARIABLE} is not set: it names the directory to install the engines in", file=sys.stderr)
        return 2
    complaints = install(there)
    print("\n".join(complaints or [f"all engines are in {there}"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
