"""Measurements, apart from the tests: `python -m tests.bench`. They print, and assert nothing about time."""
