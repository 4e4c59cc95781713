"""Answers WinRM and SSH like a Windows guest, but runs nothing: a stand-in, not Windows.

It uses only the standard library, pyspnego, asyncssh and cryptography, and nothing of the product:
the stand-in of Setup includes it in its own system.
"""
