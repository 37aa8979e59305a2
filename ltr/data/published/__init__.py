"""The public data sets: where each is published, its files and counts, and how it is unpacked."""
