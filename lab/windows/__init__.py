"""A room: Windows machines, their images and their place in clusters. See README.md."""
