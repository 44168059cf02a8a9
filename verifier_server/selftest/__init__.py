"""Attacks on a running verifier: hostile programs as data, and the command that sends them to any deployment."""
