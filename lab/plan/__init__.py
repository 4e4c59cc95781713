"""Scenario to Plan: every address, MAC, name and placement decided."""
