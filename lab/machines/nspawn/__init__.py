"""Labs of system containers: each Linux machine boots a root file system under systemd-nspawn."""
