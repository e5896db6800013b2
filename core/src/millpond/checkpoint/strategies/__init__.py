"""How snapshots are taken: in full, or as a base and what has changed since."""
