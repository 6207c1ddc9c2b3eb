"""Results of benchmark runs: merged, judged, compared and reported."""
