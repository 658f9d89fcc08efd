"""What a run leaves on the disk: its folder, part files, scores, maps and tables; written, and read
back."""
