"""Runs one program in one jail and says what it did. Knows nothing of tasks, verdicts or the network."""
