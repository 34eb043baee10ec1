"""What people look at: a run as one self-contained page."""
