"""Clusters that exist: read, entered with probe pods, and left as they were."""
