"""Built-in evaluators: a model runs on a set and its predictions are saved."""
