"""Sentences: items for text models, and tables that list many."""
