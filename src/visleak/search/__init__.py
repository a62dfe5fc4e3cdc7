"""Finding candidate pairs between two matrices of fingerprints."""
