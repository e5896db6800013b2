"""The clauses, grouped by what they are about; collected from here, never subclassed."""
