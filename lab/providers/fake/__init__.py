"""The in-memory provider, for tests and ``--dry-run``."""
