"""Mutated files: everything is equal, or refused by an error of Millpond's."""
