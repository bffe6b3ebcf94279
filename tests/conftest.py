"""Its presence puts this folder on the import path: modules here serve the tests of both folders."""
