"""Probing from pods that no agent reaches, Windows pods: by commands in them, through the API."""
