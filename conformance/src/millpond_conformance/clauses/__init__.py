"""The clauses, grouped by subject; pytest collects them from here."""
