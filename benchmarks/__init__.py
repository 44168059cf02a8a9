"""Measurements of the verifier on real data and under load. Each module is a command.

Every command prints a table and, as the last line of stdout, one JSON object. Data sets are looked for in `--data` or
the folder that POPULORA_DATA names; without either the command says so and skips.
"""
