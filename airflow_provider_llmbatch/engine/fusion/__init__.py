"""
Records of CT volumes, pathology slides, notes and facts become embeddings and predictions.

Only the worker process imports torch; :mod:`.launch` starts it and is all that a task needs.
"""
