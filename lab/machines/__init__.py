"""A room: Linux machines and the clusters on them. See README.md."""
