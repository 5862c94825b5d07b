"""A profile that cannot be used says which file, which key, and why."""

import tomllib
from pathlib import Path

import pytest

from leasetop import profile
from leasetop.model import State
from leasetop.profile import ProfileError

HOME = Path(profile.__file__).parent / "profiles" / "payment_jobs.toml"


def test_the_home_table_comes_first_and_tells_every_state() -> None:
    home = profile.shipped()[0]
    assert home.id == "payment_jobs"
    assert all(home.keeps(state) for state in State)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('status          = "j.status"', "", "columns.status is missing"),
        ('owner           = "j.lease_owner"', "owner = 7", "columns.owner must be a text"),
        ("[watchers]", "[watchmen]", "watchmen is not known"),
        ('kind            = "j.kind"', 'knid = "j.kind"', "columns.knid is not known"),
        ('evidence          = "lease"', 'evidence = "hope"', "evidence is 'hope'"),
        ("completion_fenced = true", 'completion_fenced = "yes"', "completion_fenced must be true or false"),
        ("failed     = \"j.status = 'Failed'\"", "dead = \"j.status = 'Failed'\"", "states.dead is no state"),
        ('"no lease" =', '"no hope" =', "states.stuck is a table"),
        ('id                = "payment_jobs"', "id = ", "is no TOML"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_reason(tmp_path: Path, old: str, new: str, said: str) -> None:
    whole = HOME.read_text()
    assert old in whole
    file = tmp_path / "mine.toml"
    file.write_text(whole.replace(old, new, 1))
    with pytest.raises(ProfileError) as caught:
        profile.load(file)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        profile.load(tmp_path / "none.toml")


@pytest.mark.parametrize("title", ["😀", "a\x1bb", 'q"\\', "two\nlines", "'''\n"])
def test_any_text_is_written_so_that_it_can_be_read(title: str) -> None:
    assert tomllib.loads(profile.written({"title": title, "odd 😀": {"x": [title]}})) == {
        "title": title,
        "odd 😀": {"x": [title]},
    }
