"""Designs of assimilation: a word whose last phone changes before some words and not before others."""
