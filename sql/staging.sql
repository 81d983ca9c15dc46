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

CREATE TABLE positions (
    -- How far sources outside were taken, such as partitions of a Kafka topic: written with the rows that were read up to
    -- there. source: TEXT, or BLOB when it is no UTF-8; next: the first thing of it that is not taken yet.
    source PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE pools (
    -- Lists of candidates that questions name (POOL SET). name: TEXT, or BLOB when it is no UTF-8; place, parts: the items
    -- stand behind each other in the rows place * 1048576 + 0 .. parts - 1 of pool_parts; items: how many; version: of them,
    -- as a signed number (docs/format.md); changed: unix ms.
    name PRIMARY KEY NOT NULL, place INTEGER NOT NULL, parts INTEGER NOT NULL, items INTEGER NOT NULL, version INTEGER NOT NULL,
    changed INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE pool_parts (
    -- items: of each a byte with its length, and the id. A row that belongs to no pool is what a change has left that never
    -- ended.
    id INTEGER PRIMARY KEY, items BLOB NOT NULL);

CREATE TABLE forgets (
    -- What was forgotten, for as long as retention: events whose stated time is not later are dropped, so that no replay
    -- brings them back. user_key: never the id; item_hash: 0 for all of the user; at: unix ms; id: of the sequence of the
    -- rows. What is beyond `forgets` in meta of history.db is still to be erased there.
    user_key INTEGER NOT NULL, item_hash INTEGER NOT NULL, at INTEGER NOT NULL, id INTEGER NOT NULL,
    PRIMARY KEY (user_key, item_hash)) WITHOUT ROWID;

CREATE TABLE noted (
    -- Users whose plays still stand in the old Redis, or did. id: in the order in which they were noted; user: TEXT, or
    -- BLOB when it is no UTF-8; state: 0 waits, 1 migrated, 2 left because of a problem, 3 ended by FORGET: then user is
    -- the key of the user, INTEGER, and the id is gone.
    id INTEGER PRIMARY KEY, user NOT NULL, state INTEGER NOT NULL);

CREATE TABLE legacy_problems (
    -- Keys of the old Redis that could not be taken over as they are, each once. what: what was found instead of what was
    -- expected; at: unix ms.
    key NOT NULL, what TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (key)) WITHOUT ROWID;

CREATE TABLE runs (
    -- The starts of this folder, as others who follow its feed name them (`node` in meta is its own name), and the first seq
    -- of each: a folder that was copied or went back shares the older ones alone.
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, first_seq INTEGER NOT NULL);

CREATE TABLE feed (
    -- What was recorded, in its order, while somebody consumes it; emptied as all consumers are done. seq: of the staged
    -- row; kind: 1 play, 2 delivery, 3 a user was forgotten, 4 an item of a user was, 5 more is known of a user, 6 the
    -- position of a source, 7 an item of which item is the hash (8 bytes, little endian), 8 a pool was changed; user (or source, or pool), item: TEXT, or BLOB when no UTF-8; at: unix ms, as its writer said (or the
    -- position); late: how many ms later it was recorded.
    seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item, at INTEGER NOT NULL, late INTEGER NOT NULL);
CREATE TABLE feed_consumers (
    -- Who consumes the feed. What is above cursor, and below gap unless that is 0, waits for it. lost: since when it
    -- misses events (unix ms), 0: it doesn't; left_out: how many, while it listened.
    name TEXT PRIMARY KEY, cursor INTEGER NOT NULL, gap INTEGER NOT NULL, lost INTEGER NOT NULL, left_out INTEGER NOT NULL) WITHOUT ROWID;
-- The version of unseen that a consumer needs to know every kind of event.
INSERT INTO meta (name, value) VALUES ('feed_needs', 'unseen 0.1.0');

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

CREATE VIEW feed_lag AS
-- Who consumes the feed, and how far: what waits, since when the oldest of it does, and whether any was left out.
SELECT c.name, CASE WHEN c.lost > 0 THEN 'lost' WHEN count(f.seq) > 0 THEN 'behind' ELSE 'in step' END AS state,
    c.cursor, count(f.seq) AS events, datetime(min(f.at + f.late) / 1000, 'unixepoch') AS oldest,
    datetime(nullif(c.lost, 0) / 1000, 'unixepoch') AS lost_since, c.left_out
FROM feed_consumers c LEFT JOIN feed f ON f.seq > c.cursor AND (c.gap = 0 OR f.seq < c.gap) GROUP BY c.name;

CREATE VIEW mirror_queue AS
-- What waits to be repeated in the old Redis, in the order in which it happened.
SELECT seq AS id, datetime(at / 1000, 'unixepoch') AS time,
    CASE kind WHEN 1 THEN 'play' WHEN 2 THEN 'delivery' WHEN 3 THEN 'forget user' WHEN 4 THEN 'forget item' WHEN 7 THEN 'forget item by hash' ELSE kind END AS kind,
    user, item
FROM feed_consumers c JOIN feed f ON f.seq > c.cursor AND (c.gap = 0 OR f.seq < c.gap) WHERE c.name = 'mirror' ORDER BY f.seq;
