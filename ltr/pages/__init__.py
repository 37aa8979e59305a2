"""Reports as HTML pages, LaTeX and Markdown, and the style of figures."""
