"""The operator's screen. Widgets get snapshots and give acts; none of them knows a connection."""
