"""Candidates, their predicted cost, and the choice: from a problem to a plan."""
