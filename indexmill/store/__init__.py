"""The snapshot format, and read-only access to the places that hold snapshots."""
