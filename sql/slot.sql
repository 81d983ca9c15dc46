-- One slot of the ring. id is one sequence over all slots, never reused; kind is 1 for a play and 2 for a delivery;
-- user and item are as they came (BLOB when they aren't UTF-8 text); at is unix ms.
CREATE TABLE IF NOT EXISTS staged_{slot} (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
