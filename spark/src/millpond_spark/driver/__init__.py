"""A query's start: the listener, layouts, rescaling and savepoints."""
