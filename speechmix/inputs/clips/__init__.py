"""Clips: one recording with its text, words, cue and target; and manifests that list many."""
