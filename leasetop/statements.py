"""The SQL of leasetop: finds the files of `sql/`, and turns `:name` parameters into psycopg's.

`sql/` holds one statement a file, readable by a DBA who knows no Python; profiles hold fragments of the same kind.
This module knows how to read both and nothing of what they mean. Values are always bound, never pasted.
"""

import re
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent
# In a wheel sql/ lies inside the package; in a checkout beside it.
_FOLDERS = (_PACKAGE / "sql", _PACKAGE.parent / "sql")

# What `:name` must not be looked for in (string literals, quoted identifiers, dollar quotes, comments), what only
# looks like it (`::type`, `:=`), and at last the parameter itself.
_TOKEN = re.compile(
    r"""
      (?P<skip> '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | --[^\n]* | /\*.*?\*/ | :: | := )
    | :(?P<name>[a-z_][a-z0-9_]*)
    | (?P<percent>%)
    """,
    re.VERBOSE | re.DOTALL,
)


def text(name: str) -> str:
    """The text of `sql/NAME.sql`. Raises FileNotFoundError where the installation is broken."""
    for folder in _FOLDERS:
        file = folder / f"{name}.sql"
        if file.is_file():
            return file.read_text(encoding="utf-8")
    raise FileNotFoundError(f"sql/{name}.sql is missing from this installation of leasetop: install it again")


def bind(sql: str) -> bytes:
    """SQL with `:name` parameters -> the same with `%(name)s`, each literal `%` doubled, as psycopg wants it.

    Comments go: they are for the reader of the file, and a server's log of slow statements is no place for them.
    """

    def replace(match: re.Match[str]) -> str:
        if match["name"]:
            return f"%({match['name']})s"
        found = match[0]
        if found.startswith(("--", "/*")):
            return ""
        return found.replace("%", "%%")

    return re.sub(r"\n\s*\n+", "\n", _TOKEN.sub(replace, sql)).strip().encode()


def parameters(sql: str) -> frozenset[str]:
    """The names of the `:name` parameters in some SQL."""
    return frozenset(match["name"] for match in _TOKEN.finditer(sql) if match["name"])


def quote_identifier(name: str) -> str:
    """A name as a quoted identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


@cache
def load(name: str) -> bytes:
    """`sql/NAME.sql`, ready for psycopg's `execute` with a dictionary of its parameters."""
    return bind(text(name))
