"""Files of a run on disk, and statistics and summaries of their contents."""
