"""What every stage shares: parts and how they are made, workers, estimates, reports."""
