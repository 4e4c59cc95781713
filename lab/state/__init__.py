"""The journal: labs, resources, steps, runs and faults in one SQLite file."""
