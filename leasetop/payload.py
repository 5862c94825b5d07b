"""A payload as a person reads it: JSON set out in lines, numbers exactly as they are stored, secrets hidden.

Numbers are never turned into floats: an amount must read as it was written. What is no JSON, or was cut, is shown as it
is, with the values of secret keys hidden as well as that can be done in a text.
"""

import json
import re
from collections.abc import Collection, Iterator

MASKED = (
    *("password", "passwd", "secret", "token", "authorization", "api_key", "access_token", "refresh_token"),
    *("client_secret", "private_key", "card_number", "pan", "cvv", "cvc", "iban", "account_number"),
)
"""Keys whose values are hidden where nobody says otherwise."""

_HIDDEN = "••••"
_DEEPEST = 60


class _Number(str):
    """A number as it is written."""


def pretty(text: str, masked: Collection[str] = MASKED) -> str:
    """The payload in lines."""
    hidden = {_plain(name) for name in masked}
    try:
        value = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
        return "".join(_lines(value, hidden, 0))
    except (ValueError, RecursionError):
        return _masked_text(text, masked)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def _lines(value: object, hidden: Collection[str], depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise RecursionError
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value:
        yield "{\n"
        for n, (name, one) in enumerate(value.items()):
            yield f"{pad}{json.dumps(name, ensure_ascii=False)}: "
            if _plain(name) in hidden:
                yield f'"{_HIDDEN}"'
            else:
                yield from _lines(one, hidden, depth + 1)
            yield ",\n" if n + 1 < len(value) else "\n"
        yield "  " * depth + "}"
    elif isinstance(value, list) and value:
        yield "[\n"
        for n, one in enumerate(value):
            yield pad
            yield from _lines(one, hidden, depth + 1)
            yield ",\n" if n + 1 < len(value) else "\n"
        yield "  " * depth + "]"
    elif isinstance(value, _Number):
        yield str(value)
    else:
        yield json.dumps(value, ensure_ascii=False)


def _masked_text(text: str, masked: Collection[str]) -> str:
    names = "|".join(re.escape(name).replace("_", "[_-]?") for name in masked)
    if not names:
        return text
    value = r"""("(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,;&}\]]+)"""
    return re.sub(rf"""(?i)(["']?\b(?:{names})\b["']?\s*(?:=>|[:=])\s*){value}""", rf"\g<1>{_HIDDEN}", text)
