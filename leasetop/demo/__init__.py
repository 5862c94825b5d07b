"""The live demo: an embedded PostgreSQL, sample payments, a pretend payment provider and real worker processes."""
