"""The stages that families share: from files to entities and vectors."""
