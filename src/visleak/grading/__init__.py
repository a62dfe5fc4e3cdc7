"""Grading: the grade, probability and reason of a pair, from its evidence."""

from visleak.grading.model import Grader, features, load_grader
from visleak.grading.verdict import grade

__all__ = ["Grader", "features", "grade", "load_grader"]
