"""The journal: labs, resources, steps, runs and cells in one SQLite file."""
