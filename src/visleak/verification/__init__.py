"""Verification of candidate pairs: the pixels of both images are aligned and compared."""
