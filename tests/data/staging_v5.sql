-- staging.db as schema 5 left it: staging_v4.sql upgraded, with events that wait for the old Redis (sqlite3 staging.db .dump).
PRAGMA application_id = 1433301870;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE meta (
    -- Of the ring. schema: version of this file; slots: how many; turn: a counter, the open slot is turn mod slots;
    -- high_water: the highest row id ever used, so that none is used again; newest_ms: the newest believed time.
    name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES('high_water',100);
INSERT INTO meta VALUES('legacy_paused',1);
INSERT INTO meta VALUES('mirror_broken',1790070000000);
INSERT INTO meta VALUES('mirror_left_out',3);
INSERT INTO meta VALUES('mirror_on',1);
INSERT INTO meta VALUES('newest_ms',1790071200000);
INSERT INTO meta VALUES('schema',5);
INSERT INTO meta VALUES('slots',6);
INSERT INTO meta VALUES('turn',1);
CREATE TABLE staged_0 (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
INSERT INTO staged_0 VALUES(5,1,'anna','a9',1790071100000);
INSERT INTO staged_0 VALUES(6,2,'bert','d1',1790071100500);
CREATE TABLE staged_1 (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
CREATE TABLE staged_2 (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
CREATE TABLE staged_3 (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
CREATE TABLE staged_4 (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
CREATE TABLE staged_5 (
    -- One slot of the ring: plays (kind 1) and deliveries (kind 2) as they came, durable but not yet in history.db.
    -- id: one sequence over all slots; user, item: TEXT, or BLOB when they are no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item NOT NULL, at INTEGER NOT NULL);
CREATE TABLE sessions (
    -- Scroll sessions over a restart: written at a clean stop, taken back and emptied at the next start.
    -- ids: a set of numbers in the form of a live filter; used: unix ms of the last use.
    id INTEGER PRIMARY KEY, session NOT NULL, ids BLOB NOT NULL, used INTEGER NOT NULL);
CREATE TABLE noted (
    -- Users whose plays still stand in the old Redis, or did. id: in the order in which they were noted; user: TEXT, or
    -- BLOB when it is no UTF-8; state: 0 waits, 1 migrated, 2 left because of a problem, 3 ended by FORGET: then user is
    -- the key of the user, INTEGER, and the id is gone.
    id INTEGER PRIMARY KEY, user NOT NULL, state INTEGER NOT NULL);
INSERT INTO noted VALUES(1,'dora',0);
INSERT INTO noted VALUES(2,'anna',1);
INSERT INTO noted VALUES(3,X'64ff',0);
INSERT INTO noted VALUES(4,'emil',2);
INSERT INTO noted VALUES(5,1846046855084126283,3);
CREATE TABLE legacy_problems (
    -- Keys of the old Redis that could not be taken over as they are, each once. what: what was found instead of what was
    -- expected; at: unix ms.
    key NOT NULL, what TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (key)) WITHOUT ROWID;
INSERT INTO legacy_problems VALUES('played:emil','WRONGTYPE Operation against a key holding the wrong kind of value',1790071000000);
CREATE TABLE mirror (
    -- In the order in which it happened; emptied as the old Redis takes it. id: of the staged row; kind: 1 play,
    -- 2 delivery, 3 a user was forgotten, 4 an item of a user was; user, item: TEXT, or BLOB when no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item, at INTEGER NOT NULL);
INSERT INTO mirror VALUES(7,1,'anna','a9',1790071100000);
INSERT INTO mirror VALUES(8,2,'bert','d1',1790071100500);
INSERT INTO mirror VALUES(9,3,'fred',NULL,1790071100600);
INSERT INTO mirror VALUES(10,4,'anna','a1',1790071100700);
CREATE VIEW staged AS
    -- Every play and delivery that is durable but not yet flushed, as it came.
SELECT 0 AS slot, id, datetime(at / 1000, 'unixepoch') AS time, CASE kind WHEN 1 THEN 'play' ELSE 'delivery' END AS kind, user, item, at FROM staged_0
UNION ALL SELECT 1 AS slot, id, datetime(at / 1000, 'unixepoch') AS time, CASE kind WHEN 1 THEN 'play' ELSE 'delivery' END AS kind, user, item, at FROM staged_1
UNION ALL SELECT 2 AS slot, id, datetime(at / 1000, 'unixepoch') AS time, CASE kind WHEN 1 THEN 'play' ELSE 'delivery' END AS kind, user, item, at FROM staged_2
UNION ALL SELECT 3 AS slot, id, datetime(at / 1000, 'unixepoch') AS time, CASE kind WHEN 1 THEN 'play' ELSE 'delivery' END AS kind, user, item, at FROM staged_3
UNION ALL SELECT 4 AS slot, id, datetime(at / 1000, 'unixepoch') AS time, CASE kind WHEN 1 THEN 'play' ELSE 'delivery' END AS kind, user, item, at FROM staged_4
UNION ALL SELECT 5 AS slot, id, datetime(at / 1000, 'unixepoch') AS time, CASE kind WHEN 1 THEN 'play' ELSE 'delivery' END AS kind, user, item, at FROM staged_5
;
CREATE VIEW ring AS
    -- The slots of the ring. closed: it waits for its flush, or is being flushed or emptied. Reads every staged row.
SELECT slot, CASE WHEN slot = (SELECT t.value % s.value FROM meta t, meta s WHERE t.name = 'turn' AND s.name = 'slots') THEN 'open' WHEN rows > 0 THEN 'closed' ELSE 'empty' END AS state, rows, users, datetime(oldest / 1000, 'unixepoch') AS oldest, datetime(newest / 1000, 'unixepoch') AS newest FROM (
SELECT 0 AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM staged_0
UNION ALL SELECT 1 AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM staged_1
UNION ALL SELECT 2 AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM staged_2
UNION ALL SELECT 3 AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM staged_3
UNION ALL SELECT 4 AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM staged_4
UNION ALL SELECT 5 AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM staged_5)
;
COMMIT;
