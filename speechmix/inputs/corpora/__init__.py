"""Where recordings come from: Common Voice, data sets of the hub, BLiMP, synthetic French;
`reading` is in front."""
