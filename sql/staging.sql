-- staging.db: plays and deliveries that are durable but not yet in a month's filter, one append-only table a slot of the
-- ring (slot.sql), and what else must outlive a restart. Opened with synchronous=FULL. The views `ring` and `staged` are
-- made by views.c.

CREATE TABLE meta (
    -- Of the ring. schema: version of this file; schema_hash: of the SQL that made it; slots: how many; turn: a counter,
    -- the open slot is turn mod slots; high_water: the highest row id ever used, so that none is used again; newest_ms:
    -- the newest believed time.
    name TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE set_aside (
    -- Rows of the slots that can't be read, as they were found. found: when; accepted: when unseen check --repair
    -- accepted the loss (unix ms).
    slot INTEGER NOT NULL, id INTEGER NOT NULL, kind, user, item, at, found INTEGER NOT NULL, accepted INTEGER);

CREATE TABLE sessions (
    -- Scroll sessions over a restart: written at a clean stop, taken back and emptied at the next start.
    -- ids: a set of numbers in the form of a live filter; used: unix ms of the last use.
    id INTEGER PRIMARY KEY, session NOT NULL, ids BLOB NOT NULL, used INTEGER NOT NULL);

CREATE TABLE noted (
    -- Users whose plays still stand in the old Redis, or did. id: in the order in which they were noted; user: TEXT, or
    -- BLOB when it is no UTF-8; state: 0 waits, 1 migrated, 2 left because of a problem, 3 ended by FORGET: then user is
    -- the key of the user, INTEGER, and the id is gone.
    id INTEGER PRIMARY KEY, user NOT NULL, state INTEGER NOT NULL);

CREATE TABLE legacy_problems (
    -- Keys of the old Redis that could not be taken over as they are, each once. what: what was found instead of what was
    -- expected; at: unix ms.
    key NOT NULL, what TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (key)) WITHOUT ROWID;

CREATE TABLE mirror (
    -- In the order in which it happened; emptied as the old Redis takes it. id: of the staged row; kind: 1 play,
    -- 2 delivery, 3 a user was forgotten, 4 an item of a user was; user, item: TEXT, or BLOB when no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item, at INTEGER NOT NULL);

CREATE VIEW migration AS
-- How far users who come from another Redis are, in one row. percent: of those noted, how many wait no more; problems:
-- keys that could not be taken over (migration_problems).
SELECT count(*) AS noted, count(*) FILTER (WHERE state = 0) AS waiting, count(*) FILTER (WHERE state = 1) AS migrated,
    count(*) FILTER (WHERE state = 2) AS left_over, count(*) FILTER (WHERE state = 3) AS forgotten,
    round(100.0 * count(*) FILTER (WHERE state > 0) / count(*), 1) AS percent,
    CASE coalesce((SELECT value FROM meta WHERE name = 'legacy_paused'), 0) WHEN 0 THEN 'no' ELSE 'yes' END AS paused,
    (SELECT count(*) FROM legacy_problems) AS problems
FROM noted;

CREATE VIEW migration_problems AS
-- Keys of the old Redis that could not be taken over as they are, or that refuse what the mirror sends; the newest first.
SELECT datetime(at / 1000, 'unixepoch') AS time, key, what FROM legacy_problems ORDER BY at DESC, key;

CREATE VIEW mirror_queue AS
-- What waits to be repeated in the old Redis, in the order in which it happened.
SELECT id, datetime(at / 1000, 'unixepoch') AS time,
    CASE kind WHEN 1 THEN 'play' WHEN 2 THEN 'delivery' WHEN 3 THEN 'forget user' WHEN 4 THEN 'forget item' ELSE kind END AS kind,
    user, item
FROM mirror ORDER BY id;
