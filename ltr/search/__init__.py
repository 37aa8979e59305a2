"""Search for the settings that are best on vali: its space, its trials, what it found."""
