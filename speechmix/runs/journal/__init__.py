"""Work on many items that goes on where it was stopped: lines of results, files of shards, the
journal of a stage."""
