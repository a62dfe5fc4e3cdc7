"""Find, explain, measure and remove visual data leakage."""

__version__ = "0.1.0.dev0"
