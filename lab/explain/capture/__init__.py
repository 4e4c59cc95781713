"""Follows one probe from hop to hop through captured packets. Pure."""
