"""What tools use: what lies in a checkpoint directory, its rows in memory, and edits of them."""
