"""The snapshot format and where snapshots lie, read-only."""
