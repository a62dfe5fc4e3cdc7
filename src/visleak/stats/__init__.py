"""Rankings, tests and intervals; each is imported from its module, which needs numpy or scipy."""
