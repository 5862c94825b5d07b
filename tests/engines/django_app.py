"""Drives django-tasks-db: `install`, `enqueue N [DELAY_S]`, `work BEHAVIOUR`. Runs in Django's own Python."""

import sys
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import django
from django.conf import settings
from django.core.management import call_command
from task import act, say

url, command, *words = sys.argv[1:]
parts = urlsplit(url)
where = parse_qs(parts.query)
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "USER": parts.username,
            "HOST": where["host"][0],
            "PORT": where["port"][0],
        }
    },
    INSTALLED_APPS=["django_tasks_db"],
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    USE_TZ=True,
)
django.setup()

try:
    from django.tasks import task
except ImportError:
    # Before Django 6 the interface is a package of its own.
    from django_tasks import task


@task()
def pay(number: int) -> None:
    act(words[0], number)


def enqueue(count: int, delay: int) -> None:
    from django.utils import timezone

    later = pay.using(run_after=timezone.now() + timedelta(seconds=delay)) if delay else pay
    for number in range(count):
        say("made", later.enqueue(number).id)


if command == "install":
    call_command("migrate", verbosity=0)
elif command == "enqueue":
    enqueue(int(words[0]), int(words[1]) if len(words) > 1 else 0)
elif command == "work":
    call_command("db_worker", batch=True, startup_delay=False, worker_id=f"worker-{words[0]}", verbosity=0)
