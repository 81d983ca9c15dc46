-- staging.db, from schema 2 to 3: what an operator reads in the shell (see history_3.sql). The views `ring` and `staged`
-- are made by views.c. meta.slots is written from now on.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = 'CREATE TABLE meta (
    -- Of the ring. schema: version of this file; slots: how many; turn: a counter, the open slot is turn mod slots;
    -- high_water: the highest row id ever used, so that none is used again; newest_ms: the newest believed time.
    name TEXT PRIMARY KEY, value) WITHOUT ROWID' WHERE type = 'table' AND name = 'meta';
UPDATE sqlite_schema SET sql = 'CREATE TABLE ' || name || ' (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL)' WHERE type = 'table' AND name GLOB 'staged_[0-9]*';
UPDATE sqlite_schema SET sql = 'CREATE TABLE sessions (
    -- Scroll sessions over a restart: written at a clean stop, taken back and emptied at the next start.
    -- ids: a set of numbers in the form of a live filter; used: unix ms of the last use.
    id INTEGER PRIMARY KEY, session NOT NULL, ids BLOB NOT NULL, used INTEGER NOT NULL)' WHERE type = 'table' AND name = 'sessions';
PRAGMA writable_schema = OFF;
