"""A wrapper of states whose entries expire after their time to live."""
