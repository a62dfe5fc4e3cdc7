"""A result as a document and as files."""
