"""A shell on a machine of a lab."""
