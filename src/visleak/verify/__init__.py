"""Looking at the images of candidate pairs: are they the same shot, and what was done to it?"""
