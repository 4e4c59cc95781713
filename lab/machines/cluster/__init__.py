"""Kubernetes on machines: the bundle, Linux and Windows nodes, network add-ons, and its probes."""
