"""Savepoints: Parquet tables of operators' states, their metadata, and tools to change them."""
