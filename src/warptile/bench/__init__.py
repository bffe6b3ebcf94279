"""Measuring rungs against the vendor's library, and the records that every table is generated from."""
