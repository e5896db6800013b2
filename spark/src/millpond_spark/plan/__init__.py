"""Plans, pointers and layouts, shared by the driver and the workers."""
