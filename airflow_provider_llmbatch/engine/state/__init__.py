"""Coordination between processes: limits, fences, progress. It can be lost and rebuilt; results cannot."""
