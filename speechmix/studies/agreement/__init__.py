"""The agreement study (BLiMP): items, scoring, fine-tuning, tables."""
