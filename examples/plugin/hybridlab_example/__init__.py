"""Plug-ins of hybridlab: one of every kind, each as small as it can be."""
