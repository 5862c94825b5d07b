"""Payloads: exact numbers, hidden secrets, and whatever else a table may hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasetop.payload import pretty

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


def test_numbers_are_as_they_are_stored() -> None:
    assert pretty('{"amount": 12.300, "big": 90071992547409931, "e": 1e400}') == (
        '{\n  "amount": 12.300,\n  "big": 90071992547409931,\n  "e": 1e400\n}'
    )


@pytest.mark.parametrize("name", ["password", "Card-Number", "apiKey", "api_key", "IBAN"])
def test_secrets_are_hidden_however_deep(name: str) -> None:
    assert "s3cret" not in pretty(json.dumps({"a": [{"b": {name: {"x": "s3cret"}, "c": 1}}]}))


@pytest.mark.parametrize(
    "text",
    [
        '{"order": 7, "password": "s3cret", "rest": [1, 2',
        "password: s3cret\nid: 7",
        ":password=>'s3cret'",
        "token=s3cret&a=1",
    ],
)
def test_secrets_are_hidden_in_what_is_no_json(text: str) -> None:
    shown = pretty(text)
    assert "s3cret" not in shown
    assert shown != text


def test_keys_in_any_script_can_be_hidden_each_by_itself() -> None:
    shown = pretty('{"пароль": "s3cret", "сумма": 7}', masked=["Пароль"])
    assert "s3cret" not in shown
    assert '"сумма": 7' in shown


@given(_JSON)
def test_what_is_shown_is_the_same_json(value: object) -> None:
    assert json.loads(pretty(json.dumps(value), masked=())) == value


@given(st.text(max_size=60))
def test_any_text_is_shown(text: str) -> None:
    assert isinstance(pretty(text), str)


def test_what_is_nested_beyond_reason_is_shown_as_it_is() -> None:
    deep = "[" * 5000 + "]" * 5000
    assert pretty(deep) == deep
