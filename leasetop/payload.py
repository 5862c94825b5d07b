"""A payload as a person reads it: JSON set out in lines, numbers exactly as they are stored, secrets hidden.

Numbers are never turned into floats: an amount must read as it was written. What is no JSON, or was cut, is shown as it
is, with the values of secret keys hidden as well as that can be done in a text.
"""

import json
import re
from collections.abc import Collection, Iterator

_HIDDEN = "••••"
_DEEPEST = 60
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
# Only from the beginning of a name, so that a long text without one is looked through once.
_KEY = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]+)\\*["']?\s*(?:=>|[:=])\s*""")
_SCALAR = re.compile(
    r"""(?i)\\+"(?:(?!\\+").)*(?:\\+")?|"(?:[^"\\]|\\.)*"?|'[^']*'?|(?:(?:bearer|basic|digest|token)\s+)?[^\s,;&}\])"']+""",
    re.DOTALL,
)
_PIECE = re.compile(r"""[{}\[\]]|"(?:[^"\\]|\\.)*"?""", re.DOTALL)


class _Number(str):
    """A number as it is written."""


def pretty(text: str, masked: Collection[str]) -> str:
    """The payload in lines, with the values of the keys in `masked` hidden."""
    hidden = frozenset(filter(None, map(_plain, masked)))
    try:
        value = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
        return "".join(_lines(value, hidden, 0))
    except (ValueError, RecursionError):
        return _masked_text(text, hidden)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def _is_secret(name: str, hidden: Collection[str]) -> bool:
    """Whether a key is one of those, or has one for some of its words: user_password, cardNumber, cvv2, api-key-old."""
    words = [word.casefold() for word in _WORDS.findall(name)]
    runs = {"".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, min(len(words), a + 4) + 1)}
    plain = _plain(name)
    # Short ones are words only: `pan` is not in `company`.
    return not runs.isdisjoint(hidden) or any(plain.startswith(one) or plain.endswith(one) for one in hidden if one[4:])


def _lines(value: object, hidden: Collection[str], depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise RecursionError
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value:
        yield "{\n"
        for n, (name, one) in enumerate(value.items()):
            yield f"{pad}{json.dumps(name, ensure_ascii=False)}: "
            if _is_secret(name, hidden):
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
    elif isinstance(value, str):
        # A text may be JSON, a query, or a header itself.
        yield json.dumps(_masked_text(value, hidden), ensure_ascii=False)
    else:
        yield json.dumps(value, ensure_ascii=False)


def _masked_text(text: str, hidden: Collection[str]) -> str:
    """A text with what stands behind a secret key hidden, be that an object that is cut in the middle."""
    shown, at = [], 0
    for found in _KEY.finditer(text):
        if found.start() >= at and _is_secret(found["name"], hidden):
            end = _end(text, found.end())
            if end > found.end():
                shown += [text[at : found.end()], _HIDDEN]
                at = end
    return "".join(shown) + text[at:]


def _end(text: str, start: int) -> int:
    """Where the value ends that begins there."""
    if text[start : start + 1] not in ("{", "["):
        found = _SCALAR.match(text, start)
        return found.end() if found else start
    depth = 0
    for piece in _PIECE.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(piece[0], 0)
        if depth == 0:
            return piece.end()
    return len(text)
