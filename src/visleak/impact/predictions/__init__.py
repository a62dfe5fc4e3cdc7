"""Prediction files: one table whatever the format, and the scores of images that follow from it."""

from visleak.impact.predictions.files import PredictionFile, read_predictions
from visleak.impact.predictions.scores import read_scores

__all__ = ["PredictionFile", "read_predictions", "read_scores"]
