"""Remedies: data sets without leaks, planned first and written only when asked."""
