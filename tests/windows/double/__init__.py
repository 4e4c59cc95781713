"""Answers WinRM and SSH as a Windows guest does, and runs nothing: a stand-in, not Windows.

Standard library, pyspnego, paramiko and cryptography only, and nothing of the product: it also
runs as a program of its own on another system (``python -m double CONFIGURATION.json``).
"""
