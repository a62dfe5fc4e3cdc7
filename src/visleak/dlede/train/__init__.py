"""Training runs: trainers, files, processes, curves and controls."""
