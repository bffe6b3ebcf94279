"""Barriers, mbarriers, register reallocation and dependent launches."""
