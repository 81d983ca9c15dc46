-- history.db as schema 3 left it: history_v2.sql upgraded (sqlite3 history.db .dump).
PRAGMA application_id = 1433301870;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE meta (
    -- Of the whole folder. schema: version of this file; seed: of every hash, 16 hex digits, not for others;
    -- flushes: how many were made durable; retention: in months, as of the last flush.
    name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES('flushes',1);
INSERT INTO meta VALUES('schema',3);
INSERT INTO meta VALUES('seed','928c8923bf460dfd');
CREATE TABLE users (
    -- Every user with plays or deliveries. user_key: the seeded XXH3 64 of the id, signed; last_month: the newest
    -- month of a play or delivery (year * 12 + month - 1), only rises.
    user_key INTEGER PRIMARY KEY, user NOT NULL, last_month INTEGER NOT NULL);
INSERT INTO users VALUES(-3826558798842909875,'carl',24320);
INSERT INTO users VALUES(-974412704682542383,'anna',24320);
INSERT INTO users VALUES(8857592690443836361,'bert',24319);
CREATE TABLE shared_keys (
    -- Users whose 64-bit key another one in users has already: they share filters, which hides and never shows.
    user_key INTEGER NOT NULL, user NOT NULL, PRIMARY KEY (user_key, user)) WITHOUT ROWID;
CREATE TABLE delivered (
    -- The last deliveries of a user with their staging ids, compressed: unseen_delivered(items) reads them.
    user_key INTEGER PRIMARY KEY, items BLOB NOT NULL);
CREATE TABLE exceptions (
    -- Single items un-seen again by FORGET user item; the filters still have them. item_hash: unseen_hash(item).
    user_key INTEGER NOT NULL, item_hash INTEGER NOT NULL, PRIMARY KEY (user_key, item_hash)) WITHOUT ROWID;
INSERT INTO exceptions VALUES(-974412704682542383,4249428017983793941);
CREATE TABLE quarantine (
    -- Blobs that could not be read. month 0: the user's deliveries; at: when it was set aside, accepted: when the
    -- loss was accepted (unix ms); until then questions that need the blob get an error.
    id INTEGER PRIMARY KEY, user_key INTEGER NOT NULL, user NOT NULL, month INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL, blob BLOB, accepted INTEGER);
INSERT INTO quarantine VALUES(1,8857592690443836361,'bert',24320,1790071000000,'month filter of 1 bytes: at least 5 are expected',X'00',1790071100000);
CREATE TABLE months (
    -- The months that have a table plays_YYYYMM, with its totals. month: year * 12 + month - 1; swept_to: rows up to
    -- this key have expired; sealed_to: rows up to this key have moved to sealed_YYYYMM, while that is under way.
    month INTEGER PRIMARY KEY, sealed INTEGER NOT NULL DEFAULT 0, users INTEGER NOT NULL DEFAULT 0, plays INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, swept_to INTEGER, sealed_to INTEGER);
INSERT INTO months VALUES(24319,0,2,3,26,NULL,-974412704682542383);
INSERT INTO months VALUES(24320,0,2,2,22,NULL,NULL);
CREATE TABLE plays_202609 (
    -- A user's plays of a month as a compressed Bloom filter: unseen_has(filter, item), unseen_count(filter).
    -- items: how many positions it has.
    user_key INTEGER PRIMARY KEY, items INTEGER NOT NULL, filter BLOB NOT NULL);
INSERT INTO plays_202609 VALUES(-3826558798842909875,1,X'219e01dfdce29d39b767b6');
INSERT INTO plays_202609 VALUES(-974412704682542383,1,X'219d0196d31d5867f66736');
CREATE TABLE plays_202608 (
    -- A user's plays of a month as a compressed Bloom filter: unseen_has(filter, item), unseen_count(filter).
    -- items: how many positions it has.
    user_key INTEGER PRIMARY KEY, items INTEGER NOT NULL, filter BLOB NOT NULL);
INSERT INTO plays_202608 VALUES(8857592690443836361,1,X'219d014929994c9f33a2da');
CREATE TABLE sealed_202608 (
    -- A user's plays of a month as a compressed Bloom filter: unseen_has(filter, item), unseen_count(filter).
    -- items: how many positions it has.
    user_key INTEGER PRIMARY KEY, items INTEGER NOT NULL, filter BLOB NOT NULL);
INSERT INTO sealed_202608 VALUES(-974412704682542383,2,X'219c02f2ae601d1585d90cdff558c7');
CREATE INDEX users_user ON users (user);
CREATE INDEX quarantine_user ON quarantine (user_key);
CREATE VIEW month_report AS
-- The months. percent: how far the sealing or the sweep is; expires: from that day on it is swept, a bit each night.
SELECT printf('%04d-%02d', month / 12, month % 12 + 1) AS month,
    CASE WHEN swept_to IS NOT NULL THEN 'expiring' WHEN sealed THEN 'sealed' WHEN sealed_to IS NOT NULL THEN 'sealing' ELSE 'live' END AS state,
    round(100 * (coalesce(swept_to, sealed_to) / 18446744073709551616.0 + 0.5), 1) AS percent,
    users, plays, bytes, round(bytes * 1.0 / max(plays, 1), 2) AS bytes_a_play,
    (SELECT printf('%04d-%02d-01', (month + value + 1) / 12, (month + value + 1) % 12 + 1) FROM meta WHERE name = 'retention') AS expires
FROM months ORDER BY months.month DESC
;
CREATE VIEW expiring AS
-- Months past retention whose sweep has begun: how far it is, what is left, and by when the rest will be gone.
SELECT printf('%04d-%02d', month / 12, month % 12 + 1) AS month,
    round(100 * (swept_to / 18446744073709551616.0 + 0.5), 1) AS percent_swept,
    users AS users_left, plays AS plays_left, bytes AS bytes_left,
    (SELECT printf('%04d-%02d-01', (month + value + 2) / 12, (month + value + 2) % 12 + 1) FROM meta WHERE name = 'retention') AS gone_by
FROM months WHERE swept_to IS NOT NULL ORDER BY months.month
;
CREATE VIEW deliveries AS
-- The users' last deliveries that are flushed: SELECT item FROM deliveries, unseen_delivered(items) WHERE user = 'u1'.
SELECT users.user AS user, length(items) AS bytes, items FROM delivered LEFT JOIN users USING (user_key)
;
CREATE VIEW forgotten AS
-- Items that FORGET user item made unseen again: item_hash = unseen_hash(item).
SELECT users.user AS user, item_hash FROM exceptions LEFT JOIN users USING (user_key)
;
CREATE VIEW damaged AS
-- What was set aside because it could not be read; accepted: when unseen check --repair accepted the loss.
SELECT user, CASE month WHEN 0 THEN 'deliveries' ELSE printf('%04d-%02d', month / 12, month % 12 + 1) END AS part,
    datetime(at / 1000, 'unixepoch') AS set_aside, datetime(accepted / 1000, 'unixepoch') AS accepted,
    length(blob) AS bytes, reason
FROM quarantine ORDER BY id
;
CREATE VIEW plays AS
    -- What each user played, a row a month: WHERE user = 'u1' AND unseen_has(filter, 'v9'). Not what is still staged.
SELECT '2026-09' AS month, users.user AS user, items, length(filter) AS bytes, filter, user_key FROM plays_202609 LEFT JOIN users USING (user_key)
UNION ALL SELECT '2026-08' AS month, users.user AS user, items, length(filter) AS bytes, filter, user_key FROM plays_202608 LEFT JOIN users USING (user_key)
UNION ALL SELECT '2026-08' AS month, users.user AS user, items, length(filter) AS bytes, filter, user_key FROM sealed_202608 LEFT JOIN users USING (user_key)
;
COMMIT;
