CREATE TABLE IF NOT EXISTS staged_{slot} (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
