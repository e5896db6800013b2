"""The raw states, which all backends share. They read and write the tables of a backend."""
