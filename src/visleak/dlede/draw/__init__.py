"""Splits and draws: which test images leak, and which training images they replace."""
