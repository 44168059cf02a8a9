"""Trains a population of LoRA teachers and students by self-play on programs, judged by the verifier service."""

__version__ = "0.1.0"
