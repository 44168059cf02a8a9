"""Where problems come from before teachers are any good: seeds, and the buffer of all valid problems."""
