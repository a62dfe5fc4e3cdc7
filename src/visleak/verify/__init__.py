"""Looking at the pictures of candidate pairs: are they the same shot, and what was done to it?"""
