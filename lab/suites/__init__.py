"""The connectivity matrix as pytest items, one per cell."""
