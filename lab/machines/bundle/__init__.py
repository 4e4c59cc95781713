"""All binaries and container images that a lab needs, by digest, in one directory."""
