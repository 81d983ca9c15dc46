-- staging.db, version 4: a delivery may have a group. Its row, in a slot and in the feed, is of kind 9, and its item has
-- the group's hash in front, a signed number of 20 characters. What is there stays as it is; the views are made again. A
-- program that doesn't know this kind must not open the file: it would take such rows for damaged ones.
UPDATE meta SET value = 'a version of unseen after 0.1.0' WHERE name = 'feed_needs';
DROP VIEW IF EXISTS mirror_queue;
CREATE VIEW mirror_queue AS
-- What waits to be repeated in the old Redis, in the order in which it happened.
SELECT seq AS id, datetime(at / 1000, 'unixepoch') AS time,
    CASE kind WHEN 1 THEN 'play' WHEN 2 THEN 'delivery' WHEN 3 THEN 'forget user' WHEN 4 THEN 'forget item' WHEN 7 THEN 'forget item by hash' WHEN 9 THEN 'delivery' ELSE kind END AS kind,
    user, iif(kind = 9, substr(item, 21), item) AS item
FROM feed_consumers c JOIN feed f ON f.seq > c.cursor AND (c.gap = 0 OR f.seq < c.gap) WHERE c.name = 'mirror' ORDER BY f.seq;

CREATE TABLE merges (
    -- MERGE commands that are not carried out yet, or whose end is not written down: a start carries them out before
    -- anything else. from_user, into_user: TEXT, or BLOB when it is no UTF-8; forgets: 1: the first is forgotten then.
    id INTEGER PRIMARY KEY, from_user NOT NULL, into_user NOT NULL, forgets INTEGER NOT NULL);
