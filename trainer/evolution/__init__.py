"""Weight-space operators on adapters, as pure functions of low-rank weight updates."""
