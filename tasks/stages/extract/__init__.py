"""From passages to units, entities and relations."""
