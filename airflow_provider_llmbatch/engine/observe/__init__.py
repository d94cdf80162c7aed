"""What happens in a run, told to whoever listens: a log, metrics, traces, a map of latencies."""
