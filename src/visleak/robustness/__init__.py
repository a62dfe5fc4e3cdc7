"""How well an encoder finds changed copies, and thresholds with a stated error rate."""
