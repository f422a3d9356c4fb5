"""Code that all stages share: parts, workers, estimates, reports."""
