"""Reading, checking and editing stored state for the commands."""
