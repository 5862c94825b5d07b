"""Values as TOML, for the files that leasetop writes. Python reads TOML by itself; it does not write it."""

import json
from collections.abc import Sequence


def value(given: object) -> str:
    """A text, number, boolean, or a list of them."""
    if isinstance(given, str):
        return '"' + "".join(map(_escaped, given)) + '"'
    if isinstance(given, Sequence):
        return f"[{', '.join(map(value, given))}]"
    return json.dumps(given)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
