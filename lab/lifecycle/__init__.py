"""One lab from up to down: the parts joined."""
