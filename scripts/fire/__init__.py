"""Fire: kill the program and damage its files, and see that nothing is silently wrong.

``make fire minutes=20``, or ``python -m scripts.fire``; ``--help`` lists the keys.
A try of a subject is known by the seed and its number, so that it can be shown again alone.
"""
