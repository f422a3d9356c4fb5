"""Adapters that make an index a retriever of other frameworks; each module needs the extra of the same name."""
