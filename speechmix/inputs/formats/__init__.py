"""File formats with word times: TextGrid, ELAN, CTM, JSON."""
