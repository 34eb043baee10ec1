"""The families of estimators. Each implements a paper, and plugs into the core through entry
points."""
