"""Shared by providers whose machines are computers: shells, the cluster, and its pods."""
