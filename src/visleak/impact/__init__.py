"""What leaked images do to a score: with them, without them, and whether that is chance."""
