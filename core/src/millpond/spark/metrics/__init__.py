"""Figures of batches and of workers, and the driver's view of them."""
