"""The checks, one module per kind of hop."""
