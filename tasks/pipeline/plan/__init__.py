"""What a run would do, why, and what it costs."""
