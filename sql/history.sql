-- history.db, schema 1: what every user has seen, by month. Opened with synchronous=NORMAL; made durable by the one
-- FULL commit that ends a flush.

-- schema, seed (of every hash in this folder, 16 hex digits), flushes (the barrier's counter).
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- Every user with something below. user_key is the seeded XXH3 64 of the id as a signed number; last_month is the
-- newest month (year * 12 + month - 1) of a play or delivery, and only rises.
CREATE TABLE users (user_key INTEGER PRIMARY KEY, user NOT NULL, last_month INTEGER NOT NULL);
CREATE INDEX users_user ON users (user);

-- Users whose 64-bit key another user in `users` already has: they share filters, which hides and never shows.
CREATE TABLE shared_keys (user_key INTEGER NOT NULL, user NOT NULL, PRIMARY KEY (user_key, user)) WITHOUT ROWID;

-- The last deliveries of a user with their staging ids, compressed (docs/format.md).
CREATE TABLE delivered (user_key INTEGER PRIMARY KEY, items BLOB NOT NULL);

-- Single items un-seen again by FORGET user item: the filters still hold them. item_hash is the item's whole hash.
CREATE TABLE exceptions (user_key INTEGER NOT NULL, item_hash INTEGER NOT NULL, PRIMARY KEY (user_key, item_hash)) WITHOUT ROWID;

-- Blobs that could not be read when a flush met them. month 0 is the user's deliveries. A user stays marked until
-- the loss is accepted.
CREATE TABLE quarantine (id INTEGER PRIMARY KEY, user_key INTEGER NOT NULL, user NOT NULL, month INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL, blob BLOB);
CREATE INDEX quarantine_user ON quarantine (user_key);

-- The months that have a table plays_YYYYMM, with their totals. swept_to is the expiry's cursor: rows with user_key <=
-- swept_to are gone; NULL until the sweep begins.
CREATE TABLE months (month INTEGER PRIMARY KEY, sealed INTEGER NOT NULL DEFAULT 0, users INTEGER NOT NULL DEFAULT 0, plays INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, swept_to INTEGER);

-- The months as a report.
CREATE VIEW month_report AS SELECT printf('%04d-%02d', month / 12, month % 12 + 1) AS month, CASE WHEN swept_to IS NOT NULL THEN 'expiring' WHEN sealed THEN 'sealed' ELSE 'live' END AS state, users, plays, bytes, round(bytes * 1.0 / max(plays, 1), 2) AS bytes_a_play FROM months ORDER BY months.month DESC;
CREATE VIEW expiring AS SELECT printf('%04d-%02d', month / 12, month % 12 + 1) AS month, round(100 * (swept_to / 18446744073709551616.0 + 0.5), 1) AS percent_swept, users AS users_left, plays AS plays_left FROM months WHERE swept_to IS NOT NULL;
