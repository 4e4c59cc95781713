"""Existing clusters: read, entered with probe pods, and left as they were."""
