"""Scenario files: what the user wrote, read with every position kept."""
