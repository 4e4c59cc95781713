"""SSH: shells on machines, connections, and OpenSSH's files."""
