"""How comparisons are measured: suites, interleaved rounds, environments, records."""
