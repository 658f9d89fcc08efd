"""What maps say, and whether it can be believed: cue contribution, statistics, faithfulness, probes."""
