"""Code that all stages share: making parts, workers, estimates, reports."""
