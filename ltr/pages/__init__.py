"""Reports as HTML, LaTeX, Markdown or plain text, and the style of figures."""
