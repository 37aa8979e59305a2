"""Fire: kill, damage, confuse and starve the program, and see that nothing is silently wrong.

``make fire minutes=20``, or ``PYTHONPATH=tests python -m fire``; ``--help`` lists the keys.
Four parts run at once, each in its own process: ``kills``, ``flips``, ``reader`` and ``disks``.
Each has subjects, and a try of a subject is known by the seed and its number, so that one that
found something can be shown again alone.
"""
