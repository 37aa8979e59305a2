"""Labels of the bibliography: "Burges et al., 2005", with a letter where two works share one."""

from collections.abc import Iterable, Iterator

from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.style.formatting import toplevel
from pybtex.style.formatting.plain import Style
from pybtex.style.formatting.unsrt import date, pages
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.template import Node, field, join, optional, optional_field, sentence, tag
from sphinx.application import Sphinx


def label(entry: Entry) -> str:
    """Return authors and year of ``entry``."""
    names = [" ".join(map(str, one.rich_last_names)) for one in entry.persons["author"]]
    authors = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{authors}, {entry.fields['year']}"


class Labels(BaseLabelStyle):
    """Author and year."""

    def format_labels(self, sorted_entries: Iterable[Entry]) -> Iterator[str]:
        """Give each of ``sorted_entries`` its label."""
        labels = [label(entry) for entry in sorted_entries]
        for place, text in enumerate(labels):
            letter = chr(ord("a") + labels[:place].count(text)) if labels.count(text) > 1 else ""
            yield text + letter


class AuthorYear(Style):
    """Pybtex's plain style, which sorts by author, with these labels."""

    default_label_style = Labels

    def get_article_template(self, entry: Entry) -> Node:
        """Show the volume also where the pages are not known."""
        volume = join[field("volume"), optional["(", field("number"), ")"]]
        where = join[volume, optional[":", pages]]
        return toplevel[
            self.format_names("author"),
            self.format_title(entry, "title"),
            sentence[tag("em")[field("journal")], optional[where], date],
            sentence[optional_field("note")],
            self.format_web_refs(entry),
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Name the style, for ``bibtex_default_style``."""
    register_plugin("pybtex.style.formatting", "author_year", AuthorYear)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
