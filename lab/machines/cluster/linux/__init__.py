"""Kubernetes on Linux machines: what each becomes, and the little that does it."""
