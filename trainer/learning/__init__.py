"""The learning core: advantages, losses, log-probabilities, and the learner that holds all adapters."""
