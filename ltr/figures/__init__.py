"""What experiments are drawn with: the paper's figures on paper, the figures of a page on its colours."""
