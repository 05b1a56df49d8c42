"""Random programs, run by every evaluator there is."""
