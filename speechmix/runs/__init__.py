"""A run: many clips through one or more models, stored clip by clip, resumable."""
