"""Settings: which of flag, environment and file counts, what is wrong in a file, and what read-only refuses."""

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from leasetop import config
from leasetop.cli import main
from leasetop.config import Config, ConfigError, Environment
from tests import world

PROD = """[[environment]]
name = "prod"
match = "payments@prod-*"
colour = "red"
"""
SECRET = "hunter2"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of the test is to be."""
    place = tmp_path / "settings" / "leasetop.toml"
    place.parent.mkdir()
    monkeypatch.setenv("LEASETOP_CONFIG", str(place))
    return place


def leasetop(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def shown(*flags: str) -> str:
    done = leasetop(*flags, "config", "--show")
    assert done.exit_code == 0, done.output
    return done.output


# The file


def test_it_is_where_the_platform_keeps_settings_and_a_variable_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert config.path().parts[-2:] == ("leasetop", "config.toml")
    monkeypatch.setenv("LEASETOP_CONFIG", str(tmp_path / "other.toml"))
    assert config.path() == tmp_path / "other.toml"
    assert leasetop("config", "--path").output.strip() == str(tmp_path / "other.toml")
    monkeypatch.setenv("LEASETOP_CONFIG", "~/mine.toml")
    assert config.path() == Path.home() / "mine.toml"


def test_without_a_file_the_defaults_count(file: Path) -> None:
    assert config.load() == Config()
    assert not file.exists()


def test_all_of_a_file_is_taken(file: Path) -> None:
    file.write_text(
        'interval_s = 2\non_expiry = "park"\nread_only = true\nrequire_reason = false\ntheme = "nord"\n'
        'idempotency_window = 1.5\nmask = ["pin"]\ntimes = "local"\n'
        + PROD
        + 'read_only = true\ndsn = "host=prod-db1 dbname=payments"\n'
    )
    assert config.load() == Config(
        **{"interval_s": 2.0, "on_expiry": config.Policy.PARK, "read_only": True, "require_reason": False},
        **{"theme": "nord", "idempotency_window": timedelta(minutes=90), "mask": ("pin",), "times": "local"},
        environments=(Environment("prod", "payments@prod-*", "red", True, "host=prod-db1 dbname=payments"),),
    )


def test_what_is_masked_by_default_holds_every_usual_secret() -> None:
    usual = {"password", "secret", "token", "authorization", "api_key", "card_number", "pan", "cvv", "cvc", "iban"}
    assert usual <= set(Config().mask)


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("intervall_s = 1", "intervall_s", "is not known; known are interval_s"),
        ("interval_s = -1", "interval_s", "more than 0 seconds"),
        ("interval_s = 0", "interval_s", "more than 0 seconds"),
        ("interval_s = nan", "interval_s", "more than 0 seconds"),
        ("interval_s = inf", "interval_s", "more than 0 seconds"),
        ("interval_s = '1'", "interval_s", "a number of seconds"),
        ("interval_s = true", "interval_s", "a number of seconds"),
        ("on_expiry = 'retry'", "on_expiry", "is 'retry'; it is one of requeue, park"),
        ("on_expiry = 1", "on_expiry", "is no text"),
        ("read_only = 'yes'", "read_only", "true or false"),
        ("require_reason = 0", "require_reason", "true or false"),
        ("theme = ''", "theme", "must be a text"),
        ("theme = 1", "theme", "must be a text"),
        ("idempotency_window = -1", "idempotency_window", "more than 0 hours"),
        ("idempotency_window = 1e300", "idempotency_window", "less than 1000000"),
        ("mask = 'pan'", "mask", "a list of texts"),
        ("mask = ['pan', 1]", "mask", "a list of texts"),
        ("times = 'UTC+1'", "times", "it is one of utc, local"),
        ("environment = 'prod'", "environment", "write [[environment]]"),
        ("[environment]\nname = 'prod'", "environment", "write [[environment]]"),
        ("[[environment]]\nmatch = '*'\ncolour = 'red'", "environment.1.name", "is missing"),
        ("[[environment]]\nname = 'prod'\ncolour = 'red'", "environment.prod.match", "is missing"),
        ("[[environment]]\nname = 'prod'\nmatch = '*'", "environment.prod.colour", "one of red, yellow"),
        (PROD.replace("red", "pink"), "environment.prod.colour", "is 'pink'; it is one of red, yellow"),
        (PROD.replace("payments@prod-*", "payments"), "environment.prod.match", "can match nothing"),
        (PROD + "read_only = 1", "environment.prod.read_only", "true or false"),
        (PROD + "color = 'red'", "environment.prod.color", "is not known"),
        (PROD + "dsn = 1", "environment.prod.dsn", "must be a text"),
        (PROD + "dsn = 'payments'", "environment.prod.dsn", "neither a postgresql://"),
        ((PROD + "dsn = 'host=a'\n") * 2, "environment.prod.dsn", "is given twice"),
        ("interval_s = ", "", "is no TOML"),
        ("[" * 9999, "", "is no TOML"),
        ("\ud800", "", "it is not UTF-8"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_key_and_reason(file: Path, text: str, key: str, reason: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError) as raised:
        config.load()
    said = str(raised.value)
    assert said.startswith(f"{file}: {key}")
    assert reason in said
    done = leasetop("config")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    # The ways to mend it work all the same.
    assert leasetop("config", "--path").exit_code == leasetop("config", "--init", "--yes").exit_code == 0
    assert config.load() == Config()


def test_a_file_that_cannot_be_read_is_said(file: Path) -> None:
    file.mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        config.load()


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ops:{SECRET}@prod-db1/payments",
        f"POSTGRES://ops:{SECRET}@prod-db1/payments",
        f"postgresql://ops:pa@{SECRET}@prod-db1/payments",
        f"postgresql://ops:pa/{SECRET}@prod-db1/payments",
        f"postgresql://ops:?{SECRET}@prod-db1/payments",
        f"postgresql://prod-db1/payments?password={SECRET}",
        f"postgresql://prod-db1/payments?pass%77ord={SECRET}",
        f"postgresql://prod-db1/payments?sslpassword={SECRET}",
        f"postgresql//ops:{SECRET}@prod-db1/payments?sslmode=require",
        f"ops:{SECRET}@prod-db1",
        f"host=prod-db1 password={SECRET}",
        f"host=prod-db1 PASSWORD = '{SECRET}'",
        f"host=prod-db1 pwd={SECRET}",
        f"dbname=postgresql://ops:{SECRET}@prod-db1/payments",
        f"host=prod-db1 oauth_client_secret={SECRET}",
    ],
)
def test_a_password_in_a_dsn_is_refused_and_never_repeated(file: Path, dsn: str) -> None:
    file.write_text(PROD + f'dsn = "{dsn}"\n')
    for words in (["config"], ["--env", "prod", "status"], ["status"]):
        done = leasetop(*words)
        assert done.exit_code == 2
        assert "environment.prod.dsn holds a password" in done.output
        assert "~/.pgpass or PGPASSWORD" in done.output
        assert SECRET not in done.output
    made = replace(Config(), environments=(Environment("prod", "*", "red", dsn=dsn),))
    assert SECRET not in config.shown(made)
    assert SECRET not in repr(made)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ops@prod-db1:5432/payments",
        "postgresql://ops@[::1]/payments?sslmode=require",
        "host=prod-db1 user=ops@tenant passfile=/etc/pgpass require_auth=scram-sha-256",
        "service=prod",
    ],
)
def test_a_dsn_without_one_is_taken(file: Path, dsn: str) -> None:
    file.write_text(PROD + f'dsn = "{dsn}"\n')
    assert config.environment_named("prod").dsn == dsn


# The template, and what is shown


def test_the_template_is_the_defaults_with_and_without_its_comment_signs(file: Path) -> None:
    file.write_text(config.template())
    assert config.load() == Config()
    assert max(map(len, config.template().splitlines())) <= 120
    plain, example = config.template().split("#[[environment]]")
    uncommented = re.sub(r"(?m)^#(?! |$)", "", plain)
    file.write_text(uncommented)
    assert config.load() == replace(Config(), theme="textual-dark")
    fields = {field for field in Config.__dataclass_fields__ if field != "environments"}
    assert tomllib.loads(uncommented).keys() == fields
    file.write_text(re.sub(r"(?m)^#(?! |$)", "", "#[[environment]]" + example))
    assert [one.name for one in config.load().environments] == ["prod"]


def test_what_is_shown_is_toml_and_loads_to_the_same(file: Path) -> None:
    strange = Environment('prod "\\ 😀', "*@prod-[12]", "magenta", True, "postgresql://ops@prod-db1/payments")
    made = Config(
        **{"interval_s": 0.25, "on_expiry": config.Policy.PARK, "read_only": True, "require_reason": False},
        **{"theme": "nord", "idempotency_window": timedelta(minutes=10), "mask": ("p\x1bn", "ü\x9b"), "times": "local"},
        environments=(strange, Environment("dev", "*", "green")),
    )
    file.write_text(config.shown(made))
    assert config.load() == made
    assert "".join(config.shown(made).split("\n")).isprintable()
    file.write_text(config.shown(Config()))
    assert config.load() == Config()


def test_init_writes_once_for_its_owner_alone(file: Path) -> None:
    assert leasetop("config", "--init").exit_code == 0
    assert file.read_text() == config.template()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("interval_s = 2")
    file.chmod(0o644)
    again = leasetop("config", "--init")
    assert again.exit_code == 2
    assert f"{file} is there already: say --yes to replace it" in again.stderr
    assert file.read_text() == "interval_s = 2"
    assert leasetop("config", "--init", "--yes").exit_code == 0
    assert file.read_text() == config.template()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_init_makes_the_directory_and_leaves_a_link_one(file: Path, tmp_path: Path) -> None:
    file.parent.rmdir()
    assert leasetop("config", "--init").exit_code == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    real = tmp_path / "dotfiles.toml"
    file.unlink()
    file.symlink_to(real)
    assert leasetop("config", "--init").exit_code == 2
    assert leasetop("config", "--init", "--yes").exit_code == 0
    assert file.is_symlink()
    assert real.read_text() == config.template()


def test_a_place_that_cannot_be_written_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("")
    monkeypatch.setenv("LEASETOP_CONFIG", str(file / "config.toml"))
    done = leasetop("config", "--init")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


# Which counts


def test_flags_count_before_the_environment_and_that_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "interval_s = 1.0  # default" in shown()
    file.write_text('interval_s = 2\nread_only = true\non_expiry = "park"')
    assert "interval_s = 2.0  # file" in shown()
    assert "read_only = true  # file" in shown()
    assert 'on_expiry = "park"  # file' in shown()
    monkeypatch.setenv("LEASETOP_INTERVAL", "3")
    monkeypatch.setenv("LEASETOP_READ_ONLY", "no")
    assert "interval_s = 3.0  # environment LEASETOP_INTERVAL" in shown()
    assert "read_only = false  # environment LEASETOP_READ_ONLY" in shown()
    flags = ("--interval", "4", "--read-only", "--on-expiry", "requeue")
    assert "interval_s = 4.0  # flag --interval" in shown(*flags)
    assert "read_only = true  # flag --read-only" in shown(*flags)
    assert 'on_expiry = "requeue"  # flag --on-expiry' in shown(*flags)
    assert 'times = "utc"  # default' in shown(*flags)
    assert config.settings(interval_s=4).config.interval_s == 4


def test_variables_that_are_empty_are_not_set(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("interval_s = 2\nread_only = true")
    for name in ("LEASETOP_INTERVAL", "LEASETOP_READ_ONLY", "LEASETOP_DSN"):
        monkeypatch.setenv(name, "")
    assert "interval_s = 2.0  # file" in shown()
    assert "read_only = true  # file" in shown()
    assert "# dsn: not given" in shown()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LEASETOP_INTERVAL", "0"),
        ("LEASETOP_INTERVAL", "-1"),
        ("LEASETOP_INTERVAL", "nan"),
        ("LEASETOP_INTERVAL", "often"),
        ("LEASETOP_READ_ONLY", "perhaps"),
    ],
)
def test_a_variable_that_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    done = leasetop("config")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"leasetop: {variable} must be")


def test_the_dsn_comes_from_flag_or_variable_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    dsn = f"postgresql://ops:{SECRET}@db1/payments"
    assert SECRET not in shown("--dsn", dsn)
    assert "# dsn: not shown  # flag --dsn" in shown("--dsn", dsn)
    monkeypatch.setenv("LEASETOP_DSN", dsn)
    assert SECRET not in shown()
    assert "# dsn: not shown  # environment LEASETOP_DSN" in shown()


def test_leasetop_dsn_is_used_where_no_flag_is(
    dsn: str, blank_dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEASETOP_DSN", dsn)
    assert leasetop("status").exit_code == 0
    # A flag before the command counts before the variable, too.
    monkeypatch.setenv("LEASETOP_DSN", blank_dsn)
    assert leasetop("--dsn", dsn, "status").exit_code == 0
    assert leasetop("status", "--dsn", dsn).exit_code == 0
    assert "leasetop init" in leasetop("status").stderr
    # An empty flag is one, and stands for libpq's own environment.
    monkeypatch.setenv("PGHOST", str(tmp_path))
    assert str(tmp_path) in leasetop("status", "--dsn", "").stderr


@pytest.mark.parametrize("value", [f"postgresql//u:{SECRET}@h/db", f"postgresql://ops:pa@{SECRET}@127.0.0.1:1/x"])
def test_a_variable_that_is_no_dsn_is_named_and_not_repeated(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LEASETOP_DSN", value)
    done = leasetop("status")
    assert done.exit_code == 2
    assert done.stderr.startswith("leasetop: LEASETOP_DSN")
    assert SECRET not in done.output
    assert "--dsn" not in done.output


# Environments


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("payments@prod-db1", "prod"),
        ("payments@PROD-db1.example.com", "prod"),
        ("payments@prod-", "prod"),
        ("billing@prod-db1", "rest"),
        ("payments@xprod-db1", "rest"),
        ("payments@stage1", "stage"),
        ("payments@stage3", "rest"),
    ],
)
def test_the_first_pattern_that_fits_counts(file: Path, title: str, name: str) -> None:
    file.write_text(
        PROD
        + '[[environment]]\nname = "stage"\nmatch = "*@stage[12]"\ncolour = "yellow"\n'
        + '[[environment]]\nname = "rest"\nmatch = "*"\ncolour = "green"\n'
    )
    found = config.environment_for(title)
    assert found is not None
    assert found.name == name
    assert config.environment_for(title, Config()) is None


def test_env_goes_where_its_dsn_goes(dsn: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(PROD + f'dsn = "{dsn}"\n[[environment]]\nname = "stage"\nmatch = "*"\ncolour = "blue"\n')
    # Who asks for one environment never lands in another.
    monkeypatch.setenv("LEASETOP_DSN", "host=/nowhere")
    assert leasetop("--env", "prod", "status").exit_code == 0
    assert leasetop("status", "--env", "prod").exit_code == 0
    assert leasetop("queues", "--env", "prod").exit_code == 0
    assert f"# dsn: environment.prod.dsn of {file}" in shown("--env", "prod")
    for words in (["status", "--env", "prod", "--dsn", dsn], ["--env", "prod", "status", "--dsn", dsn]):
        assert "give one of --dsn and --env" in leasetop(*words).stderr
    missing = leasetop("--env", "stage", "status")
    assert (missing.exit_code, "environment.stage.dsn is missing" in missing.stderr) == (2, True)
    unknown = leasetop("--env", "test", "worker")
    assert (unknown.exit_code, "prod, stage" in unknown.stderr) == (2, True)


# Read-only


@pytest.mark.parametrize("how", ["flag", "flag before", "variable", "file", "environment", "named environment"])
def test_read_only_refuses_every_write_in_the_database(
    dsn: str, file: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before, after, at = [], [], ["--dsn", dsn]
    if how == "flag":
        after = ["--read-only"]
    elif how == "flag before":
        before = ["--read-only"]
    elif how == "variable":
        monkeypatch.setenv("LEASETOP_READ_ONLY", "1")
    elif how == "file":
        file.write_text("read_only = true")
    elif how == "environment":
        file.write_text(PROD.replace("payments@prod-*", "test_*@LOCAL") + "read_only = true")
    else:
        file.write_text(PROD + f'read_only = true\ndsn = "{dsn}"\n')
        at = ["--env", "prod"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        job = world.held(connection, lease_s=-5)
        was = world.row(connection, job)
        for words in (
            ["requeue", str(job), "--reason", "x", "--yes"],
            ["sweep"],
            ["enqueue", "--amount", "1", "--currency", "EUR"],
            ["init"],
        ):
            done = leasetop(*before, *words, *at, *after)
            assert done.exit_code == 1, done.output
            assert len(done.stderr.splitlines()) == 1
            assert "read-only" in done.stderr or "read_only" in done.stderr
            assert {"flag": "--read-only", "file": str(file), "variable": "LEASETOP_READ_ONLY"}.get(
                how.split()[0], "environment prod" if "environment" in how else "--read-only"
            ) in done.stderr
        assert world.row(connection, job) == was
        assert world.events(connection, job) == []
        for words in (["status"], ["list"], ["queues"], ["sweep", "--dry-run"]):
            assert leasetop(*before, *words, *at, *after).exit_code == 0
        # A flag has the last word.
        free = leasetop("requeue", str(job), "--reason", "x", "--yes", *at, "--no-read-only")
        assert free.exit_code == 0, free.output
        assert world.row(connection, job)[0] == "Pending"


def test_another_environment_may_be_written(dsn: str, file: Path) -> None:
    file.write_text(PROD + "read_only = true")
    with psycopg.connect(dsn, autocommit=True) as connection:
        world.held(connection, lease_s=-5)
    assert leasetop("sweep", "--dsn", dsn).output.startswith("1 expired lease swept")


@pytest.mark.parametrize("command", ["worker", "watch"])
def test_what_only_writes_cannot_be_read_only(dsn: str, command: str) -> None:
    done = leasetop("--read-only", "--dsn", dsn, command)
    assert done.exit_code == 2
    assert "cannot be --read-only" in done.stderr


def test_the_files_policy_counts_for_a_sweep_and_a_flag_before_it(dsn: str, file: Path) -> None:
    file.write_text('on_expiry = "park"')
    with psycopg.connect(dsn, autocommit=True) as connection:
        world.held(connection, lease_s=-5)
        assert "would be swept (park)" in leasetop("sweep", "--dry-run", "--dsn", dsn).output
        assert "1 Pending" in leasetop("sweep", "--on-expiry", "requeue", "--dsn", dsn).output
        world.held(connection, lease_s=-5)
        assert "1 Stuck" in leasetop("sweep", "--dsn", dsn).output


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_names_the_program_and_how_to_install_it(shell: str) -> None:
    done = leasetop("completion", shell)
    assert done.exit_code == 0
    assert "_LEASETOP_COMPLETE" in done.stdout
    assert f"{shell}_complete" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("# To install it: ")
    assert f"leasetop completion {shell}" in last
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.parametrize(("words", "offered"), [("leasetop req", "requeue"), ("leasetop status --env pr", "prod")])
def test_commands_and_environments_are_completed(file: Path, words: str, offered: str) -> None:
    file.write_text(PROD + 'dsn = "service=prod"\n')
    env = {"_LEASETOP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = CliRunner().invoke(main, [], env=env, prog_name="leasetop")
    assert done.output.split() == [f"plain,{offered}"]
    file.write_text("nonsense")
    assert "Traceback" not in CliRunner().invoke(main, [], env=env, prog_name="leasetop").output


# Start


@pytest.mark.parametrize("words", [["config"], ["config", "--path"], ["completion", "fish"], ["sweep", "--help"]])
def test_settings_load_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\nimport leasetop.config\nfrom leasetop.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert not {"textual", "psycopg", "asyncio"} & set(done.stderr.split("LOADED", 1)[1].split())
