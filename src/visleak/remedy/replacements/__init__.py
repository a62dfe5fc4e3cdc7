"""Replacements for duplicates in a test set: candidates of a pool, and decisions about them."""
