"""Read and write files: whole or not at all, with locks, checksums and clear errors."""
