"""Everything that a release measures, in stages that can be stopped and resumed."""
