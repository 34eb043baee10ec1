"""The pages of docs/gallery: audits of well-known networks, and what is surprising in them.

`make gallery` computes the runs, draws the pictures and writes the pages; by hand, not with the
tests.
"""
