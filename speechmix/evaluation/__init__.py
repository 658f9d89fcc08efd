"""What maps say: cue contribution and, later, baselines, ablation and statistics."""
