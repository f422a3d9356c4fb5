"""From passages to mentions of entities."""
