"""Payloads: exact numbers, hidden secrets, and whatever else a table may hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasetop.config import MASKED
from leasetop.payload import pretty

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


def test_numbers_are_as_they_are_stored() -> None:
    assert pretty('{"amount": 12.300, "big": 90071992547409931, "e": 1e400}', MASKED) == (
        '{\n  "amount": 12.300,\n  "big": 90071992547409931,\n  "e": 1e400\n}'
    )


@pytest.mark.parametrize("name", ["password", "Card-Number", "apiKey", "api_key", "IBAN"])
def test_secrets_are_hidden_however_deep(name: str) -> None:
    assert "s3cret" not in pretty(json.dumps({"a": [{"b": {name: {"x": "s3cret"}, "c": 1}}]}), MASKED)


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
    shown = pretty(text, MASKED)
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
    assert isinstance(pretty(text, MASKED), str)


def test_what_is_nested_beyond_reason_is_shown_as_it_is() -> None:
    deep = "[" * 5000 + "]" * 5000
    assert pretty(deep, MASKED) == deep


@pytest.mark.parametrize(
    "name",
    ["user_password", "userPassword", "userpassword", "cvv2", "card.number", "CardNumber", "x-api-key-old", "PAN"],
)
def test_a_key_that_has_a_secret_one_in_its_words_is_hidden(name: str) -> None:
    for shown in (
        pretty(json.dumps({name: "s3cret"}), MASKED),
        pretty(f"{name}: s3cret\n", MASKED),
        pretty(f'{{"{name}": ["s3cret", 1', MASKED),
    ):
        assert "s3cret" not in shown


@pytest.mark.parametrize("name", ["company", "span", "expansion", "amount", "tokyo", "keyboard"])
def test_a_key_that_only_looks_a_bit_like_one_is_shown(name: str) -> None:
    assert "plain" in pretty(json.dumps({name: "plain"}), MASKED)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "password": {"value": ["s3cret", {"x": "}s3cret"}]}, "rest": [1, 2',
        '{"password": {"value": {"x": "s3cret',
        '{"password": "a \\" s3cret',
        "[" * 70 + '{"token": {"x": "s3cret"}}' + "]" * 70,
        '{"body": "{\\"password\\": \\"s3cret\\", \\"id\\": 7}"}',
        '{"body": "{\\"password\\": {\\"x\\": \\"s3cret\\"}}", "rest": [',
        "Authorization: Bearer s3cret",
        '{"headers": "Accept: x\\nAuthorization: Basic s3cret"}',
    ],
)
def test_a_secret_that_is_nested_cut_or_in_a_text_of_its_own_is_hidden(text: str) -> None:
    assert "s3cret" not in pretty(text, MASKED)
    assert "••••" in pretty(text, MASKED)


def test_what_stands_around_a_secret_stays() -> None:
    assert (
        pretty('password: x\nid: 7, "token": {"a": [1]} and more, [', MASKED)
        == 'password: ••••\nid: 7, "token": •••• and more, ['
    )


def test_a_long_text_is_looked_through_once() -> None:
    for piece in ("a", "a.", '"', "a:", "password=", '{"password":', "\\"):
        assert pretty(piece * (20_000 // len(piece)), MASKED)
