"""Pages and tables from finished runs: one run, a clip, several runs side by side."""
