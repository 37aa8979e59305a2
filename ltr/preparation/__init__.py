"""Data sets before their first run: archives checked and unpacked, lists counted and summed up."""
