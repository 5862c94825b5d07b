"""leasetop: a terminal operations dashboard for PostgreSQL job queues that hand out work by lease."""
