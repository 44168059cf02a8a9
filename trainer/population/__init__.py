"""Who plays whom, who is how good, who is replaced: pure functions with their random generator as an argument."""
