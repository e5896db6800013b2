"""``millpond report``: figures of the state in a directory, with advice, as a page or as JSON."""
