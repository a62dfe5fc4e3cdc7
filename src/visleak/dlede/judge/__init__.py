"""From scores to a verdict."""
