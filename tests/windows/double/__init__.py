"""Answers WinRM and SSH as a Windows guest does, and runs nothing: a stand-in, not Windows.

Standard library, pyspnego, paramiko and cryptography only, and nothing of the product: the
stand-in of Setup carries it into its own system.
"""
