"""Savepoints: Parquet tables that every backend writes and restores, and that people edit."""
