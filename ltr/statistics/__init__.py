"""Which of two systems ranks better, and how sure that is: tests, intervals, verdicts."""
