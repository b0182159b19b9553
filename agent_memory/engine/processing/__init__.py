"""Work after an update: compaction of windows, absorption by blocks, retention of logs."""
