"""Tables, which compare runs with each other and with published numbers."""

from ltr.errors import need

need("matplotlib", "report")
