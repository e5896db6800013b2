"""The clauses, one module per subject; pytest collects the tests from this package."""
