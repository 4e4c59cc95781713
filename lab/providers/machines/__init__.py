"""What providers share whose machines are computers: shells, the cluster on them, its pods."""
