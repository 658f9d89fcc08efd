"""Audio: files, arrays and parts of tars, as mono samples."""
