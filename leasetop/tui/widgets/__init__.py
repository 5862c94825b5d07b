"""Widgets get data by assignment and give acts by message; none of them awaits the database."""
