"""Ready-made evaluators: what a model answers on a set, written as a file of predictions."""
