"""Does the reply hold what was asked for? Strict JSON, then the schema; salvage only without loss."""
