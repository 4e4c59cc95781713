"""The embedded provider: network namespaces and the kernel's own data path."""
