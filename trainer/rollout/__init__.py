"""Sampling: prompts, parsing, and the engines that serve every adapter of the population in one batch."""
