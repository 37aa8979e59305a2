"""Settings of the documentation, which ``make docs`` builds."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

import ltr  # noqa: E402

project, author, copyright = "ltr", "the ltr authors", "the ltr authors, Apache-2.0"
version = release = ltr.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinxcontrib.bibtex",
    "sphinx_copybutton",
    "sphinx_llms_txt",
    "reference_pages",
    "text_sources",
    "mathml",
    "author_year",
]
# the generated pages are parts of the pages that include them
exclude_patterns = ["build", "extensions", "reference/generated"]
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "author_year"
bibtex_reference_style = "author_year"
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # shapes and units stand in the text
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 80
napoleon_use_rtype = False
nitpicky = False
# Pygments does not know a quoted text that goes on in the next line of a console
suppress_warnings = ["misc.highlighting_failure"]
copybutton_prompt_text = r">>> |\.\.\. |\$ |> "  # of Python and of the shell
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_copy_empty_lines = False

html_theme = "furo"
html_title = f"ltr {release}"
html_static_path = ["static"]
html_css_files = ["custom.css"]
html_show_sphinx = False
html_show_sourcelink = False
html_math_renderer = "mathml"
llms_txt_uri_template = "_sources/{docname}{suffix}{sourcelink_suffix}"
llms_txt_summary = (
    "Learning to rank in PyTorch: losses, models, metrics and reproducible experiments."
)
