-- State of one host. Dropping the file costs time, never a result or a cent.
CREATE TABLE IF NOT EXISTS buckets (meter TEXT PRIMARY KEY, level REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quanta (
    meter TEXT NOT NULL, number INTEGER NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (meter, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (meter TEXT PRIMARY KEY, used INTEGER NOT NULL) WITHOUT ROWID;
-- Not-before of an account and model, the factor right after the last refusal, and what was refused.
CREATE TABLE IF NOT EXISTS refusals (
    throttle TEXT PRIMARY KEY, until REAL NOT NULL, low REAL NOT NULL, ceiling REAL NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
-- Limits that the service told, where they are lower than configured.
CREATE TABLE IF NOT EXISTS told (meter TEXT PRIMARY KEY, capacity INTEGER NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    id TEXT PRIMARY KEY, throttle TEXT NOT NULL, owner TEXT NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID;
-- Until when an owner's leases count without a further sign of life.
CREATE TABLE IF NOT EXISTS alive (owner TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS leases_by_throttle ON leases (throttle, expires);
-- What open calls have reserved of totals.
CREATE TABLE IF NOT EXISTS holds (
    meter TEXT NOT NULL, lease TEXT NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (meter, lease)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS holds_by_lease ON holds (lease);
CREATE TABLE IF NOT EXISTS turns (
    queue TEXT NOT NULL, waiter TEXT NOT NULL, priority INTEGER NOT NULL, ticket INTEGER NOT NULL,
    kept_until REAL NOT NULL, PRIMARY KEY (queue, waiter)
) WITHOUT ROWID;
-- What each who waits has had, in seconds of the rate; waiter '' is where newcomers stand.
CREATE TABLE IF NOT EXISTS had (
    queue TEXT NOT NULL, waiter TEXT NOT NULL, seconds REAL NOT NULL, at REAL NOT NULL, PRIMARY KEY (queue, waiter)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fences (owner TEXT PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS standings (
    owner TEXT PRIMARY KEY, result_path TEXT NOT NULL, done INTEGER NOT NULL, items INTEGER NOT NULL,
    figures TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (
    question TEXT PRIMARY KEY, holder TEXT NOT NULL, fence INTEGER NOT NULL, ends REAL NOT NULL,
    path TEXT, chunk INTEGER, item INTEGER
) WITHOUT ROWID;
-- Health of credentials and endpoints, as JSON; see health.py.
CREATE TABLE IF NOT EXISTS gates (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latencies (
    endpoint TEXT NOT NULL, slot INTEGER NOT NULL, bucket INTEGER NOT NULL, calls INTEGER NOT NULL,
    ends REAL NOT NULL, PRIMARY KEY (endpoint, slot, bucket)
) WITHOUT ROWID;
-- Runs that shall stop, and which of their tasks know.
CREATE TABLE IF NOT EXISTS stops (run TEXT PRIMARY KEY, by TEXT NOT NULL, why TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heeded (
    run TEXT NOT NULL, owner TEXT NOT NULL, occasion TEXT NOT NULL, PRIMARY KEY (run, owner)
) WITHOUT ROWID;
-- Endpoints that people have fixed the route at.
CREATE TABLE IF NOT EXISTS pins (gate TEXT PRIMARY KEY, by TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
-- Endpoints that the routes of runs lead to, and when one last said so.
CREATE TABLE IF NOT EXISTS offered (gate TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS host (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL);
