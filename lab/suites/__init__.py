"""The connectivity matrix as pytest items, one a cell."""
