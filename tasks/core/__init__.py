"""The code that all stages share: parts, workers, estimates and reports."""
