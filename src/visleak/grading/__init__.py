"""From evidence to a verdict: grade, probability and a reason in words."""

from visleak.grading.model import Grader, features, load_grader
from visleak.grading.verdict import grade

__all__ = ["Grader", "features", "grade", "load_grader"]
