"""Combine finished runs into one ranker."""
