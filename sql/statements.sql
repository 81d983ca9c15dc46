-- Every statement, prepared once a connection (once a month table or slot where it names one in braces).
-- A line "-- :name" begins each.

-- :begin_write
BEGIN IMMEDIATE;
-- :begin_read
BEGIN;
-- :commit
COMMIT;

-- :meta_get
SELECT value FROM meta WHERE name = ?1;
-- :meta_set
INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
-- :meta_raise
INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value < excluded.value;

-- :staged_tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[0-9]*';
-- :staged_all
SELECT id, kind, user, item, at FROM staged_{slot} ORDER BY id;
-- :staged_insert
INSERT INTO staged_{slot} (id, kind, user, item, at) VALUES (?1, ?2, ?3, ?4, ?5);
-- :staged_has
SELECT 1 FROM staged_{slot} WHERE id = ?1;
-- :staged_delete_one
DELETE FROM staged_{slot} WHERE id = ?1;
-- :staged_delete_range
DELETE FROM staged_{slot} WHERE id BETWEEN ?1 AND ?2;
-- :staged_chunk_end
SELECT max(id), count(*) FROM (SELECT id FROM staged_{slot} WHERE id <= ?1 ORDER BY id LIMIT ?2);
-- :staged_drop
DROP TABLE staged_{slot};
-- :staged_bounds
SELECT (SELECT min(id) FROM staged_{slot}), (SELECT max(id) FROM staged_{slot}), (SELECT min(id) FROM staged_{slot} WHERE id BETWEEN 1 AND ?1), (SELECT max(id) FROM staged_{slot} WHERE id BETWEEN 1 AND ?1);
-- :staged_largest_group
SELECT id FROM (SELECT id, count(*) OVER (ORDER BY id RANGE BETWEEN CURRENT ROW AND 4294967295 FOLLOWING) AS rows FROM staged_{slot} WHERE id BETWEEN 1 AND ?1) ORDER BY rows DESC, id DESC LIMIT 1;
-- :staged_outside
SELECT id FROM staged_{slot} WHERE id NOT BETWEEN ?1 AND ?2 ORDER BY id;
-- :staged_renumber
UPDATE OR IGNORE staged_{slot} SET id = ?2 WHERE id = ?1;
-- :staged_set_aside
INSERT INTO set_aside SELECT ?2, id, kind, user, item, at, ?3, ?4 FROM staged_{slot} WHERE id = ?1;
-- :set_aside_accept
UPDATE set_aside SET accepted = ?1 WHERE accepted IS NULL;
-- :set_aside_found
SELECT printf('staging.db: row %d of slot %d can''t be read and was set aside on %s, and the loss is not accepted (unseen check --repair)', id, slot, strftime('%Y-%m-%d', found / 1000, 'unixepoch')) FROM set_aside WHERE accepted IS NULL ORDER BY found, slot, id;
-- :forgotten_create
CREATE TEMP TABLE forgotten (user NOT NULL, item, before INTEGER NOT NULL, key INTEGER NOT NULL);
-- :forgotten_put
INSERT INTO forgotten (user, item, before, key) VALUES (?1, ?2, ?3, ?4);
-- :forgotten_index
CREATE INDEX temp.forgotten_user ON forgotten (user, item);
-- :staged_delete_forgotten
DELETE FROM staged_{slot} AS s WHERE EXISTS (SELECT 1 FROM forgotten f WHERE f.user = s.user AND (f.item IS NULL OR f.item = s.item) AND s.id < f.before);

-- :noted_all
SELECT id, user, state FROM noted ORDER BY id;
-- :noted_insert
INSERT INTO noted (id, user, state) VALUES (?1, ?2, 0);
-- :noted_revive
UPDATE noted SET state = 0, user = ?2 WHERE id = ?1;
-- :noted_user
SELECT user FROM noted WHERE id = ?1 AND state <> 3;
-- :noted_mark
UPDATE noted SET state = ?2 WHERE id = ?1;
-- :noted_end
UPDATE noted SET state = 3, user = ?2 WHERE id = ?1;
-- :noted_end_forgotten
UPDATE noted SET state = 3, user = f.key FROM forgotten f WHERE f.user = noted.user AND f.item IS NULL;
-- :noted_waiting
SELECT user FROM noted WHERE id = ?1 AND state = 0;
-- :noted_problem_new
INSERT INTO legacy_problems (key, what, at) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO NOTHING;
-- :noted_problem_again
UPDATE legacy_problems SET what = ?2, at = ?3 WHERE key = ?1;
-- :noted_problems
SELECT key, what, at FROM legacy_problems ORDER BY at DESC, key LIMIT ?1;
-- :noted_problems_delete
DELETE FROM legacy_problems;

-- :mirror_insert
INSERT INTO mirror (id, kind, user, item, at) VALUES (?1, ?2, ?3, ?4, ?5);
-- :mirror_from
SELECT id, kind, user, item, at FROM mirror WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3;
-- :mirror_chunk_end
SELECT max(id), count(*) FROM (SELECT id FROM mirror WHERE id <= ?1 ORDER BY id LIMIT ?2);
-- :mirror_delete
DELETE FROM mirror WHERE id <= ?1;
-- :mirror_delete_range
DELETE FROM mirror WHERE id BETWEEN ?1 AND ?2;

-- What `unseen check` looks for in the tables of users from another Redis, as texts; --repair uses the same conditions.
-- :noted_problems_found
SELECT printf('staging.db: note %d can''t be read (state %s, user of %d B)', id, state, length(CAST(user AS BLOB))) FROM noted WHERE NOT (id BETWEEN 1 AND 1073741823 AND typeof(state) = 'integer' AND state BETWEEN 0 AND 3 AND (state = 3 AND typeof(user) = 'integer' OR typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND 255))
UNION ALL SELECT printf('staging.db: %d notes of one user, the first of them is %d', count(*), min(id)) FROM noted WHERE state < 3 GROUP BY user HAVING count(*) > 1
UNION ALL SELECT printf('staging.db: a row of legacy_problems can''t be read (key of %d B)', length(CAST(key AS BLOB))) FROM legacy_problems WHERE NOT (typeof(key) IN ('text', 'blob') AND length(CAST(key AS BLOB)) > 0 AND typeof(what) = 'text' AND typeof(at) = 'integer')
UNION ALL SELECT printf('staging.db: %s in meta is "%s", expected a number', name, value) FROM meta WHERE name = 'legacy_paused' AND NOT (typeof(value) = 'integer' AND value >= 0);
-- :mirror_problems_found
SELECT printf('staging.db: event %d for the old Redis can''t be read (kind %s, user of %d B)', id, kind, length(CAST(user AS BLOB))) FROM mirror WHERE NOT (id > 0 AND kind IN (1, 2, 3, 4) AND typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND 255 AND (kind = 3 AND item IS NULL OR kind <> 3 AND typeof(item) IN ('text', 'blob') AND length(CAST(item AS BLOB)) BETWEEN 1 AND 255) AND typeof(at) = 'integer')
UNION ALL SELECT printf('staging.db: %s in meta is "%s", expected a number', name, value) FROM meta WHERE name IN ('mirror_on', 'mirror_broken', 'mirror_left_out') AND NOT (typeof(value) = 'integer' AND value >= 0)
UNION ALL SELECT 'staging.db: events wait for the old Redis, but meta says that there was no mirror' WHERE EXISTS (SELECT 1 FROM mirror) AND coalesce((SELECT value FROM meta WHERE name = 'mirror_on'), 0) = 0
UNION ALL SELECT 'staging.db: meta says that the mirror left events out, but not since when' WHERE coalesce((SELECT value FROM meta WHERE name = 'mirror_left_out'), 0) > 0 AND coalesce((SELECT value FROM meta WHERE name = 'mirror_broken'), 0) = 0;
-- :repair_note_states
UPDATE noted SET state = 0 WHERE id BETWEEN 1 AND 1073741823 AND typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND 255 AND NOT (typeof(state) = 'integer' AND state BETWEEN 0 AND 3);
-- :repair_notes
DELETE FROM noted WHERE NOT (id BETWEEN 1 AND 1073741823 AND (state = 3 AND typeof(user) = 'integer' OR typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND 255));
-- :repair_note_twice
UPDATE noted SET state = 0 WHERE id IN (SELECT min(id) FROM noted WHERE state < 3 GROUP BY user HAVING count(*) > 1);
-- :repair_note_repeats
DELETE FROM noted WHERE state < 3 AND id NOT IN (SELECT min(id) FROM noted WHERE state < 3 GROUP BY user);
-- :repair_legacy_problems
DELETE FROM legacy_problems WHERE NOT (typeof(key) IN ('text', 'blob') AND length(CAST(key AS BLOB)) > 0 AND typeof(what) = 'text' AND typeof(at) = 'integer');
-- :repair_legacy_paused
UPDATE meta SET value = 0 WHERE name = 'legacy_paused' AND NOT (typeof(value) = 'integer' AND value >= 0);
-- :repair_mirror
DELETE FROM mirror WHERE NOT (id > 0 AND kind IN (1, 2, 3, 4) AND typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND 255 AND (kind = 3 AND item IS NULL OR kind <> 3 AND typeof(item) IN ('text', 'blob') AND length(CAST(item AS BLOB)) BETWEEN 1 AND 255) AND typeof(at) = 'integer');
-- :repair_mirror_meta
UPDATE meta SET value = CASE name WHEN 'mirror_left_out' THEN 0 WHEN 'mirror_on' THEN 1 ELSE ?1 END WHERE name IN ('mirror_on', 'mirror_broken', 'mirror_left_out') AND NOT (typeof(value) = 'integer' AND value >= 0);
-- :repair_mirror_on
INSERT INTO meta (name, value) SELECT 'mirror_on', 1 WHERE EXISTS (SELECT 1 FROM mirror) AND coalesce((SELECT value FROM meta WHERE name = 'mirror_on'), 0) = 0 ON CONFLICT (name) DO UPDATE SET value = 1;
-- :repair_mirror_since
INSERT INTO meta (name, value) SELECT 'mirror_broken', ?1 WHERE coalesce((SELECT value FROM meta WHERE name = 'mirror_left_out'), 0) > 0 AND coalesce((SELECT value FROM meta WHERE name = 'mirror_broken'), 0) = 0 ON CONFLICT (name) DO UPDATE SET value = excluded.value;
-- :repair_mirror_left_out
INSERT INTO meta (name, value) VALUES ('mirror_left_out', ?1) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value;

-- :sessions_all
SELECT session, ids, used FROM sessions ORDER BY id;
-- :session_insert
INSERT INTO sessions (session, ids, used) VALUES (?1, ?2, ?3);
-- :sessions_delete
DELETE FROM sessions;

-- :months_window
SELECT month, sealed_to FROM months WHERE month >= ?1 ORDER BY month DESC;
-- :months_all
SELECT month, sealed, users, plays, bytes, swept_to, sealed_to FROM months ORDER BY month DESC;
-- :month_tables
SELECT s.name, m.month FROM months m JOIN sqlite_schema s ON s.type = 'table' AND s.name IN (printf('plays_%04d%02d', m.month / 12, m.month % 12 + 1), printf('sealed_%04d%02d', m.month / 12, m.month % 12 + 1)) ORDER BY m.month DESC;
-- :month_insert
INSERT INTO months (month) VALUES (?1) ON CONFLICT (month) DO NOTHING;
-- :month_add
UPDATE months SET users = users + ?2, plays = plays + ?3, bytes = bytes + ?4 WHERE month = ?1;
-- :month_swept
UPDATE months SET swept_to = ?2 WHERE month = ?1;
-- :months_revive
UPDATE months SET swept_to = NULL WHERE swept_to IS NOT NULL AND month >= ?1;
-- :month_delete
DELETE FROM months WHERE month = ?1;
-- :month_drop
DROP TABLE IF EXISTS {plays};
-- :month_sealed_to
UPDATE months SET sealed_to = ?2 WHERE month = ?1;
-- :month_sealed
UPDATE months SET sealed = 1, sealed_to = NULL WHERE month = ?1;
-- :month_rename
ALTER TABLE sealed_{month} RENAME TO plays_{month};

-- :play_get
SELECT filter FROM {plays} WHERE user_key = ?1;
-- :play_read
SELECT CASE WHEN length(filter) <= ?2 THEN filter END FROM {plays} WHERE user_key = ?1;
-- :play_put
INSERT INTO {plays} (user_key, items, filter) VALUES (?1, ?2, ?3) ON CONFLICT (user_key) DO UPDATE SET items = excluded.items, filter = excluded.filter;
-- :play_size
SELECT items, length(filter) FROM {plays} WHERE user_key = ?1;
-- :play_delete
DELETE FROM {plays} WHERE user_key = ?1;
-- :play_chunk
SELECT max(user_key), count(*), total(items), total(length(filter)) FROM (SELECT user_key, items, filter FROM {plays} WHERE user_key >= ?1 AND user_key <= ?2 ORDER BY user_key LIMIT ?3);
-- :play_delete_range
DELETE FROM {plays} WHERE user_key >= ?1 AND user_key <= ?2;
-- :play_from
SELECT user_key, items, filter FROM {plays} WHERE user_key >= ?1 ORDER BY user_key;

-- :user_get
SELECT user, last_month FROM users WHERE user_key = ?1;
-- :users_from
SELECT user_key, user, last_month FROM users WHERE user_key >= ?1 AND user_key <= ?2 ORDER BY user_key LIMIT ?3;
-- :user_put
INSERT INTO users (user_key, user, last_month) VALUES (?1, ?2, ?3) ON CONFLICT (user_key) DO UPDATE SET last_month = excluded.last_month;
-- :user_name
UPDATE users SET user = ?2 WHERE user_key = ?1;
-- :user_delete
DELETE FROM users WHERE user_key = ?1;
-- :users_stale_chunk
SELECT max(user_key), count(*) FROM (SELECT user_key FROM users WHERE user_key >= ?1 AND user_key <= ?2 ORDER BY user_key LIMIT ?3);
-- :users_delete_stale
DELETE FROM users WHERE user_key >= ?1 AND user_key <= ?2 AND last_month <= ?3;

-- :shared_get
SELECT 1 FROM shared_keys WHERE user_key = ?1 LIMIT 1;
-- :shared_users
SELECT user FROM shared_keys WHERE user_key = ?1;
-- :shared_put
INSERT INTO shared_keys (user_key, user) VALUES (?1, ?2) ON CONFLICT DO NOTHING;

-- :delivered_get
SELECT items FROM delivered WHERE user_key = ?1;
-- :delivered_put
INSERT INTO delivered (user_key, items) VALUES (?1, ?2) ON CONFLICT (user_key) DO UPDATE SET items = excluded.items;
-- :delivered_delete
DELETE FROM delivered WHERE user_key = ?1;

-- :exceptions_get
SELECT item_hash FROM exceptions WHERE user_key = ?1;
-- :exception_put
INSERT INTO exceptions (user_key, item_hash) VALUES (?1, ?2) ON CONFLICT DO NOTHING;
-- :exception_delete
DELETE FROM exceptions WHERE user_key = ?1 AND item_hash = ?2;
-- :exceptions_delete
DELETE FROM exceptions WHERE user_key = ?1;

-- :quarantine_put
INSERT INTO quarantine (user_key, user, month, at, reason, blob) VALUES (?1, ?2, ?3, ?4, ?5, ?6);
-- :salvage_mark
INSERT INTO quarantine (user_key, user, month, at, reason) SELECT user_key, user, ?3, ?4, 'its page of history.db could not be read' FROM users WHERE user_key BETWEEN ?1 AND ?2 AND last_month >= ?3;
-- :salvage_user
INSERT OR IGNORE INTO users (user_key, user, last_month) VALUES (?1, ?2, ?3);
-- :salvage_month_tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND (name GLOB 'plays_[0-9]*' OR name GLOB 'sealed_[0-9]*');
-- :quarantine_get
SELECT month FROM quarantine WHERE user_key = ?1 AND (month >= ?2 OR month = 0) AND accepted IS NULL ORDER BY month DESC LIMIT 1;
-- :quarantine_any
SELECT 1 FROM quarantine WHERE user_key = ?1 AND month = ?2 LIMIT 1;
-- :quarantine_open
SELECT DISTINCT month FROM quarantine WHERE user_key = ?1 AND accepted IS NULL ORDER BY month;
-- :quarantine_delete
DELETE FROM quarantine WHERE user_key = ?1;
-- :quarantine_delete_month
DELETE FROM quarantine WHERE month = ?1;

-- :delivered_delete_orphans
DELETE FROM delivered WHERE user_key >= ?1 AND user_key <= ?2 AND NOT EXISTS (SELECT 1 FROM users WHERE users.user_key = delivered.user_key);
-- :exceptions_delete_orphans
DELETE FROM exceptions WHERE user_key >= ?1 AND user_key <= ?2 AND NOT EXISTS (SELECT 1 FROM users WHERE users.user_key = exceptions.user_key);
-- :shared_delete_orphans
DELETE FROM shared_keys WHERE user_key >= ?1 AND user_key <= ?2 AND NOT EXISTS (SELECT 1 FROM users WHERE users.user_key = shared_keys.user_key);
-- :quarantine_delete_orphans
DELETE FROM quarantine WHERE user_key >= ?1 AND user_key <= ?2 AND NOT EXISTS (SELECT 1 FROM users WHERE users.user_key = quarantine.user_key);

-- :view_get
SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?1;
-- The views over tables that come and go, as their SQL (views.c). One without tables has no rows.
-- LEFT JOIN: a condition on the user makes SQLite begin with him; without one it reads the month in its order, not
-- all users by name with a look-up at random for each (6 times slower for a million).
-- :view_plays
SELECT 'CREATE VIEW plays AS
    -- What each user played, a row a month: WHERE user = ''u1'' AND unseen_has(filter, ''v9''). Not what is still staged.
' || coalesce(group_concat(arm, '
UNION ALL '), 'SELECT '''' AS month, user, 0 AS items, 0 AS bytes, x'''' AS filter, user_key FROM users WHERE false')
FROM (SELECT printf('SELECT ''%.4s-%.2s'' AS month, users.user AS user, items, length(filter) AS bytes, filter, user_key FROM %s LEFT JOIN users USING (user_key)', substr(name, -6), substr(name, -2), name) AS arm
    FROM sqlite_schema WHERE type = 'table' AND (name GLOB 'plays_[0-9]*' OR name GLOB 'sealed_[0-9]*')
    ORDER BY substr(name, -6) DESC, name);
-- :view_staged
SELECT 'CREATE VIEW staged AS
    -- Every play and delivery that is durable but not yet flushed, as it came.
' || coalesce(group_concat(arm, '
UNION ALL '), 'SELECT 0 AS slot, 0 AS id, '''' AS time, '''' AS kind, '''' AS user, '''' AS item, 0 AS at WHERE false')
FROM (SELECT printf('SELECT %s AS slot, id, datetime(at / 1000, ''unixepoch'') AS time, CASE kind WHEN 1 THEN ''play'' ELSE ''delivery'' END AS kind, user, item, at FROM %s', substr(name, 8), name) AS arm
    FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[0-9]*' ORDER BY CAST(substr(name, 8) AS INTEGER));
-- :view_ring
SELECT 'CREATE VIEW ring AS
    -- The slots of the ring. closed: it waits for its flush, or is being flushed or emptied. Reads every staged row.
SELECT slot, CASE WHEN slot = (SELECT t.value % s.value FROM meta t, meta s WHERE t.name = ''turn'' AND s.name = ''slots'') THEN ''open'' WHEN rows > 0 THEN ''closed'' ELSE ''empty'' END AS state, rows, users, datetime(oldest / 1000, ''unixepoch'') AS oldest, datetime(newest / 1000, ''unixepoch'') AS newest FROM (
' || coalesce(group_concat(arm, '
UNION ALL '), 'SELECT 0 AS slot, 0 AS rows, 0 AS users, 0 AS oldest, 0 AS newest WHERE false') || ')'
FROM (SELECT printf('SELECT %s AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM %s', substr(name, 8), name) AS arm
    FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[0-9]*' ORDER BY CAST(substr(name, 8) AS INTEGER));
