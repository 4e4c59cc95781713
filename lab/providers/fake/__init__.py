"""The provider in memory: for tests and for --dry-run."""
