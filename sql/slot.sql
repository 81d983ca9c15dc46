CREATE TABLE IF NOT EXISTS staged_{slot} (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2; of a group 9) as they came, durable but not yet in
    -- history.db. Its rows go on in staged_0_1, staged_0_2 and so on (of slot 0), so that each table can be emptied at once.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; of
    -- kind 9 the item has its group's hash in front, a signed number of 20 characters; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
