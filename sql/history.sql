-- history.db: what every user has seen, by month (month.sql). Opened with synchronous=NORMAL; made durable by the one
-- FULL commit that ends a flush. Each table says what it is in its own SQL, which `.schema` shows. The view `plays`, over
-- the tables that come and go, is made by views.c.

CREATE TABLE meta (
    -- Of the whole folder. schema: version of this file; schema_hash: of the SQL that made it; seed: of every hash, 16
    -- hex digits, not for others; flushes: how many were made durable; retention: in months, as of the last flush.
    name TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE users (
    -- Every user with plays or deliveries. user_key: the seeded XXH3 64 of the id, signed, by which users are looked
    -- up: unseen_key(user); last_month: the newest month of a play or delivery (year * 12 + month - 1), only rises.
    user_key INTEGER PRIMARY KEY, user NOT NULL, last_month INTEGER NOT NULL);

CREATE TABLE shared_keys (
    -- Users whose 64-bit key another one in users has already: they share filters, which hides and never shows.
    user_key INTEGER NOT NULL, user NOT NULL, PRIMARY KEY (user_key, user)) WITHOUT ROWID;

CREATE TABLE delivered (
    -- The last deliveries of a user with their staging ids, compressed: unseen_delivered(items) reads them.
    user_key INTEGER PRIMARY KEY, items BLOB NOT NULL);

CREATE TABLE exceptions (
    -- Single items un-seen again by FORGET user item; the filters still have them. item_hash: unseen_hash(item).
    user_key INTEGER NOT NULL, item_hash INTEGER NOT NULL, PRIMARY KEY (user_key, item_hash)) WITHOUT ROWID;

CREATE TABLE quarantine (
    -- Blobs that could not be read. month 0: the user's deliveries; at: when it was set aside, accepted: when the
    -- loss was accepted (unix ms); until then questions that need the blob get an error.
    id INTEGER PRIMARY KEY, user_key INTEGER NOT NULL, user NOT NULL, month INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL, blob BLOB, accepted INTEGER);
CREATE INDEX quarantine_user ON quarantine (user_key);

CREATE TABLE months (
    -- The months that have a table plays_YYYYMM, with its totals. month: year * 12 + month - 1; swept_to: rows up to
    -- this key have expired; sealed_to: rows up to this key have moved to sealed_YYYYMM, while that is under way.
    month INTEGER PRIMARY KEY, sealed INTEGER NOT NULL DEFAULT 0, users INTEGER NOT NULL DEFAULT 0, plays INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, swept_to INTEGER, sealed_to INTEGER);

CREATE VIEW month_report AS
-- The months. percent: how far the sealing or the sweep is; expires: from that day on it is swept, a bit each night.
SELECT printf('%04d-%02d', month / 12, month % 12 + 1) AS month,
    CASE WHEN swept_to IS NOT NULL THEN 'expiring' WHEN sealed THEN 'sealed' WHEN sealed_to IS NOT NULL THEN 'sealing' ELSE 'live' END AS state,
    round(100 * (coalesce(swept_to, sealed_to) / 18446744073709551616.0 + 0.5), 1) AS percent,
    users, plays, bytes, round(bytes * 1.0 / max(plays, 1), 2) AS bytes_a_play,
    (SELECT printf('%04d-%02d-01', (month + value + 1) / 12, (month + value + 1) % 12 + 1) FROM meta WHERE name = 'retention') AS expires
FROM months ORDER BY months.month DESC;

CREATE VIEW expiring AS
-- Months past retention whose sweep has begun: how far it is, what is left, and by when the rest will be gone.
SELECT printf('%04d-%02d', month / 12, month % 12 + 1) AS month,
    round(100 * (swept_to / 18446744073709551616.0 + 0.5), 1) AS percent_swept,
    users AS users_left, plays AS plays_left, bytes AS bytes_left,
    (SELECT printf('%04d-%02d-01', (month + value + 2) / 12, (month + value + 2) % 12 + 1) FROM meta WHERE name = 'retention') AS gone_by
FROM months WHERE swept_to IS NOT NULL ORDER BY months.month;

CREATE VIEW deliveries AS
-- The users' last deliveries that are flushed: SELECT item FROM deliveries, unseen_delivered(items)
-- WHERE user_key = unseen_key('u1').
SELECT users.user AS user, length(items) AS bytes, items, user_key FROM delivered LEFT JOIN users USING (user_key);

CREATE VIEW forgotten AS
-- Items that FORGET user item made unseen again: item_hash = unseen_hash(item).
SELECT users.user AS user, item_hash, user_key FROM exceptions LEFT JOIN users USING (user_key);

CREATE VIEW damaged AS
-- What was set aside because it could not be read; accepted: when unseen check --repair accepted the loss.
SELECT user, CASE month WHEN 0 THEN 'deliveries' ELSE printf('%04d-%02d', month / 12, month % 12 + 1) END AS part,
    datetime(at / 1000, 'unixepoch') AS set_aside, datetime(accepted / 1000, 'unixepoch') AS accepted,
    length(blob) AS bytes, reason, user_key
FROM quarantine ORDER BY id;
