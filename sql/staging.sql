-- staging.db, schema 1: plays and deliveries that are durable but not yet in a month's filter.
-- Opened with synchronous=FULL. One append-only table a slot of the ring (see slot.sql).

-- What the ring must remember: schema, turn (the counter; the open slot is turn mod slots), high_water (the
-- highest row id ever used, so that none is used again), newest_ms (the newest believed time),
-- unsure_ms, leapt_ms, reached_ms (of a clock that leapt, or is doubted: struct guard_kept).
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
