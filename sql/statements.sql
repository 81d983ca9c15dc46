-- Every statement, prepared once a connection (once a month's or a slot's table where it names one in braces).
-- A line "-- :name" begins each.

-- :begin_write
BEGIN IMMEDIATE;
-- :begin_read
BEGIN;
-- :commit
COMMIT;
-- :data_version
PRAGMA data_version;

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
-- :staged_range
SELECT id, kind, user, item, at FROM staged_{slot} WHERE id BETWEEN ?1 AND ?2 ORDER BY id;
-- The rows, in that order, handed to a function of the connection (slot_stream.c): stepping each costs more than it has.
-- :staged_take
SELECT take_staged(id, kind, user, item, at) FROM staged_{slot} WHERE id BETWEEN ?1 AND ?2;
-- :staged_next
SELECT min(id) FROM staged_{slot} WHERE id >= ?1;
-- :staged_insert
INSERT INTO staged_{slot} (id, kind, user, item, at) VALUES (?1, ?2, ?3, ?4, ?5);
-- :staged_of_user
SELECT id, kind, user, item, at FROM staged_{slot} WHERE user = ?1 ORDER BY id;
-- :staged_delete_user
DELETE FROM staged_{slot} WHERE user = ?1;
-- :staged_has
SELECT 1 FROM staged_{slot} WHERE id = ?1;
-- :staged_delete_one
DELETE FROM staged_{slot} WHERE id = ?1;
-- :staged_delete_range
DELETE FROM staged_{slot} WHERE id BETWEEN ?1 AND ?2;
-- :staged_chunk_end
SELECT max(id), count(*) FROM (SELECT id FROM staged_{slot} WHERE id <= ?1 ORDER BY id LIMIT ?2);
-- Without a condition pages go to the free list as they are: a page that a row was deleted from is written, twice.
-- :staged_clear
DELETE FROM staged_{slot};
-- :staged_drop
DROP TABLE staged_{slot};
-- :staged_bounds
SELECT (SELECT min(id) FROM staged_{slot}), (SELECT max(id) FROM staged_{slot}), (SELECT min(id) FROM staged_{slot} WHERE id BETWEEN 1 AND ?1), (SELECT max(id) FROM staged_{slot} WHERE id BETWEEN 1 AND ?1);
-- Of all of a slot's tables: {ids} are theirs, each as staged_ids, and UNION ALL between them.
-- :staged_largest_group
SELECT id FROM (SELECT id, count(*) OVER (ORDER BY id RANGE BETWEEN CURRENT ROW AND 4294967295 FOLLOWING) AS rows FROM ({ids}) WHERE id BETWEEN 1 AND ?1) ORDER BY rows DESC, id DESC LIMIT 1;
-- :staged_ids
SELECT id FROM staged_{slot}
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
CREATE TEMP TABLE forgotten (user NOT NULL, item, before INTEGER NOT NULL, key INTEGER NOT NULL, cut INTEGER NOT NULL);
-- :forgotten_put
INSERT INTO forgotten (user, item, before, key, cut) VALUES (?1, ?2, ?3, ?4, ?5);
-- :forgotten_index
CREATE INDEX temp.forgotten_user ON forgotten (user, item);
-- :staged_delete_forgotten
DELETE FROM staged_{slot} AS s WHERE EXISTS (SELECT 1 FROM forgotten f WHERE f.user = s.user AND ((f.item IS NULL OR f.item = iif(s.kind = 9, substr(s.item, 21), s.item)) AND s.id < f.before OR s.kind IN (2, 9) AND (min(max(s.at, 0), 8796093022207) << 20 | (s.id & 1048575)) < f.cut));

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

-- :feed_insert
INSERT INTO feed (seq, kind, user, item, at, late) VALUES (?1, ?2, ?3, ?4, ?5, ?6);
-- :feed_from
SELECT seq, kind, user, item, at, late FROM feed WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3;
-- :feed_mark
SELECT max(seq) FROM feed WHERE kind = 6 AND user >= ?1 AND user < ?2 AND at <= ?3;
-- :feed_first
SELECT min(seq) FROM feed;
-- :runs_all
SELECT run, first_seq FROM runs ORDER BY id;
-- :run_put
INSERT INTO runs (run, first_seq) VALUES (?1, ?2);
-- :runs_trim
DELETE FROM runs WHERE id NOT IN (SELECT id FROM runs ORDER BY id DESC LIMIT ?1);
-- :feed_totals
SELECT count(*), coalesce(sum(24 + length(CAST(user AS BLOB)) + coalesce(length(CAST(item AS BLOB)), 0)), 0), coalesce(min(at + late), 0) FROM feed WHERE seq > ?1 AND seq < ?2;
-- :feed_chunk_end
SELECT max(seq), count(*) FROM (SELECT seq FROM feed WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq LIMIT ?3);
-- :feed_delete
DELETE FROM feed WHERE seq BETWEEN ?1 AND ?2;
-- :feed_consumers
SELECT name, cursor, gap, lost, left_out FROM feed_consumers ORDER BY name;
-- :feed_consumer_put
INSERT INTO feed_consumers (name, cursor, gap, lost, left_out) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor, gap = excluded.gap, lost = excluded.lost, left_out = excluded.left_out;
-- :feed_consumer_accept
UPDATE feed_consumers SET lost = 0, left_out = 0 WHERE name = ?1;
-- :feed_consumer_delete
DELETE FROM feed_consumers WHERE name = ?1;
-- :feed_remotes_delete
DELETE FROM feed_consumers WHERE name GLOB 'replica:*' OR name = 'front' OR name = 'archive';
-- Before what waits is dropped.
-- :feed_lose_all
UPDATE feed_consumers SET lost = ?1 WHERE lost = 0;
-- :feed_lose
UPDATE feed_consumers SET lost = ?1 WHERE lost = 0 AND EXISTS (SELECT 1 FROM feed WHERE seq > cursor AND (gap = 0 OR seq < gap));

-- :pools_all
SELECT name, place, parts, items, version, changed FROM pools ORDER BY name;
-- :pool_get
SELECT place, parts, version FROM pools WHERE name = ?1;
-- :pool_put
INSERT INTO pools (name, place, parts, items, version, changed) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (name) DO UPDATE SET place = excluded.place, parts = excluded.parts, items = excluded.items, version = excluded.version, changed = excluded.changed;
-- :pool_delete
DELETE FROM pools WHERE name = ?1;
-- :pool_free_place
SELECT 1 + max(coalesce((SELECT max(place) FROM pools), 0), coalesce((SELECT max(id) / 1048576 FROM pool_parts), 0));
-- :pool_part_put
INSERT INTO pool_parts (id, items) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET items = excluded.items;
-- :pool_parts_of
SELECT items FROM pool_parts WHERE id BETWEEN ?1 AND ?2 ORDER BY id;
-- :pool_parts_delete
DELETE FROM pool_parts WHERE id BETWEEN ?1 AND ?2;
-- :pool_parts_left
DELETE FROM pool_parts WHERE id / 1048576 NOT IN (SELECT place FROM pools);

-- What `unseen check` looks for in the tables of users from another Redis, as texts; --repair uses the same conditions.
-- :noted_problems_found
SELECT printf('staging.db: note %d can''t be read (state %s, user of %d B)', id, state, length(CAST(user AS BLOB))) FROM noted WHERE NOT (id BETWEEN 1 AND 1073741823 AND typeof(state) = 'integer' AND state BETWEEN 0 AND 3 AND (state = 3 AND typeof(user) = 'integer' OR typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND 255))
UNION ALL SELECT printf('staging.db: %d notes of one user, the first of them is %d', count(*), min(id)) FROM noted WHERE state < 3 GROUP BY user HAVING count(*) > 1
UNION ALL SELECT printf('staging.db: a row of legacy_problems can''t be read (key of %d B)', length(CAST(key AS BLOB))) FROM legacy_problems WHERE NOT (typeof(key) IN ('text', 'blob') AND length(CAST(key AS BLOB)) > 0 AND typeof(what) = 'text' AND typeof(at) = 'integer')
UNION ALL SELECT printf('staging.db: %s in meta is "%s", expected a number', name, value) FROM meta WHERE name = 'legacy_paused' AND NOT (typeof(value) = 'integer' AND value >= 0);
-- :feed_problems_found
SELECT printf('staging.db: event %d of the feed can''t be read (kind %s, user of %d B)', seq, kind, length(CAST(user AS BLOB))) FROM feed WHERE NOT (seq > 0 AND kind BETWEEN 1 AND 8 AND typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND CASE kind WHEN 6 THEN 400 ELSE 255 END AND (kind IN (3, 5, 6, 8) AND item IS NULL OR kind NOT IN (3, 5, 6, 8) AND typeof(item) IN ('text', 'blob') AND length(CAST(item AS BLOB)) BETWEEN 1 AND 255) AND typeof(at) = 'integer' AND typeof(late) = 'integer')
UNION ALL SELECT printf('staging.db: consumer "%s" of the feed can''t be read (cursor %s, gap %s, lost %s, left out %s)', name, cursor, gap, lost, left_out) FROM feed_consumers WHERE NOT (typeof(name) = 'text' AND length(CAST(name AS BLOB)) BETWEEN 1 AND 31 AND typeof(cursor) = 'integer' AND cursor >= 0 AND typeof(gap) = 'integer' AND (gap = 0 OR gap > cursor) AND typeof(lost) = 'integer' AND lost >= 0 AND typeof(left_out) = 'integer' AND left_out >= 0 AND (left_out = 0 OR lost > 0))
UNION ALL SELECT 'staging.db: the feed has events, and nobody to consume them' WHERE EXISTS (SELECT 1 FROM feed) AND NOT EXISTS (SELECT 1 FROM feed_consumers);
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
-- :repair_feed_lost
UPDATE feed_consumers SET lost = CASE WHEN typeof(lost) = 'integer' AND lost > 0 THEN lost ELSE ?1 END, left_out = left_out + n FROM (SELECT count(*) AS n FROM feed WHERE NOT (seq > 0 AND kind BETWEEN 1 AND 8 AND typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND CASE kind WHEN 6 THEN 400 ELSE 255 END AND (kind IN (3, 5, 6, 8) AND item IS NULL OR kind NOT IN (3, 5, 6, 8) AND typeof(item) IN ('text', 'blob') AND length(CAST(item AS BLOB)) BETWEEN 1 AND 255) AND typeof(at) = 'integer' AND typeof(late) = 'integer')) WHERE n > 0;
-- :repair_feed
DELETE FROM feed WHERE NOT (seq > 0 AND kind BETWEEN 1 AND 8 AND typeof(user) IN ('text', 'blob') AND length(CAST(user AS BLOB)) BETWEEN 1 AND CASE kind WHEN 6 THEN 400 ELSE 255 END AND (kind IN (3, 5, 6, 8) AND item IS NULL OR kind NOT IN (3, 5, 6, 8) AND typeof(item) IN ('text', 'blob') AND length(CAST(item AS BLOB)) BETWEEN 1 AND 255) AND typeof(at) = 'integer' AND typeof(late) = 'integer');
-- :repair_feed_consumers
UPDATE feed_consumers SET cursor = CASE WHEN typeof(cursor) = 'integer' AND cursor >= 0 THEN cursor ELSE 0 END, gap = CASE WHEN typeof(gap) = 'integer' AND gap > cursor THEN gap ELSE 0 END, lost = CASE WHEN typeof(lost) = 'integer' AND lost > 0 THEN lost ELSE ?1 END, left_out = CASE WHEN typeof(left_out) = 'integer' AND left_out >= 0 THEN left_out ELSE 0 END WHERE NOT (typeof(name) = 'text' AND length(CAST(name AS BLOB)) BETWEEN 1 AND 31 AND typeof(cursor) = 'integer' AND cursor >= 0 AND typeof(gap) = 'integer' AND (gap = 0 OR gap > cursor) AND typeof(lost) = 'integer' AND lost >= 0 AND typeof(left_out) = 'integer' AND left_out >= 0 AND (left_out = 0 OR lost > 0)) AND typeof(name) = 'text' AND length(CAST(name AS BLOB)) BETWEEN 1 AND 31;
-- :repair_feed_names
DELETE FROM feed_consumers WHERE NOT (typeof(name) = 'text' AND length(CAST(name AS BLOB)) BETWEEN 1 AND 31 AND typeof(cursor) = 'integer' AND cursor >= 0 AND typeof(gap) = 'integer' AND (gap = 0 OR gap > cursor) AND typeof(lost) = 'integer' AND lost >= 0 AND typeof(left_out) = 'integer' AND left_out >= 0 AND (left_out = 0 OR lost > 0));
-- :repair_feed_mirror
INSERT INTO feed_consumers (name, cursor, gap, lost, left_out) SELECT 'mirror', 0, 0, ?1, 0 WHERE EXISTS (SELECT 1 FROM feed) AND NOT EXISTS (SELECT 1 FROM feed_consumers);

-- :sessions_all
SELECT session, ids, used FROM sessions ORDER BY id;
-- :session_insert
INSERT INTO sessions (session, ids, used) VALUES (?1, ?2, ?3);
-- :sessions_delete
DELETE FROM sessions;

-- :tombstones_all
SELECT user_key, item_hash, at, id FROM forgets;
-- :tombstones_after
SELECT user_key, item_hash, id, cut FROM forgets WHERE id > ?1 ORDER BY id;
-- :tombstones_of_items
SELECT item_hash, at FROM forgets WHERE user_key = ?1 AND item_hash <> 0;
-- :tombstone_put
INSERT INTO forgets (user_key, item_hash, at, id, cut) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (user_key, item_hash) DO UPDATE SET at = max(at, excluded.at), id = max(id, excluded.id), cut = max(cut, excluded.cut);
-- :tombstones_delete_user
DELETE FROM forgets WHERE user_key = ?1 AND item_hash <> 0 AND at <= ?2;
-- :tombstones_undo
DELETE FROM forgets WHERE id >= ?1;
-- :tombstones_expire
DELETE FROM forgets WHERE at < ?1;
-- :tombstones_settle
UPDATE forgets SET id = 0 WHERE id <> 0;
-- :tombstones_until
UPDATE forgets SET at = ?1 WHERE at > ?1;
-- :tombstones_problems_found
SELECT 'staging.db: a row of forgets can''t be read' FROM forgets WHERE NOT (typeof(user_key) = 'integer' AND typeof(item_hash) = 'integer' AND typeof(at) = 'integer' AND typeof(id) = 'integer' AND id >= 0);
-- :repair_tombstones
DELETE FROM forgets WHERE NOT (typeof(user_key) = 'integer' AND typeof(item_hash) = 'integer' AND typeof(at) = 'integer' AND typeof(id) = 'integer' AND id >= 0);

-- :merges_all
SELECT id, from_user, into_user, forgets FROM merges ORDER BY id;
-- :merge_put
INSERT INTO merges (id, from_user, into_user, forgets) VALUES (?1, ?2, ?3, ?4);
-- :merge_delete
DELETE FROM merges WHERE id = ?1;
-- :merges_problems_found
SELECT printf('staging.db: row %d of merges can''t be read (from %d B, into %d B, forgets %s)', id, length(CAST(from_user AS BLOB)), length(CAST(into_user AS BLOB)), forgets) FROM merges WHERE NOT (typeof(from_user) IN ('text', 'blob') AND length(CAST(from_user AS BLOB)) BETWEEN 1 AND 255 AND typeof(into_user) IN ('text', 'blob') AND length(CAST(into_user AS BLOB)) BETWEEN 1 AND 255 AND typeof(forgets) = 'integer' AND forgets BETWEEN 0 AND 1);
-- :repair_merges
DELETE FROM merges WHERE NOT (typeof(from_user) IN ('text', 'blob') AND length(CAST(from_user AS BLOB)) BETWEEN 1 AND 255 AND typeof(into_user) IN ('text', 'blob') AND length(CAST(into_user AS BLOB)) BETWEEN 1 AND 255 AND typeof(forgets) = 'integer' AND forgets BETWEEN 0 AND 1);

-- :positions_all
SELECT source, next FROM positions;
-- :position_put
INSERT INTO positions (source, next) VALUES (?1, ?2) ON CONFLICT (source) DO UPDATE SET next = excluded.next;
-- :positions_page
SELECT source, next FROM positions WHERE ?1 IS NULL OR source > ?1 ORDER BY source LIMIT ?2;
-- :tombstones_page
SELECT user_key, item_hash, at, id FROM forgets WHERE user_key >= ?1 AND (?3 = 0 OR user_key > ?1 OR item_hash > ?2) ORDER BY user_key, item_hash LIMIT ?4;
-- :positions_delete
DELETE FROM positions;
-- :positions_again
UPDATE positions SET next = 0 WHERE source <> 'lineage';
-- :positions_problems_found
SELECT printf('staging.db: the position of a source can''t be read (source of %d B, next %s)', length(CAST(source AS BLOB)), next) FROM positions WHERE NOT (typeof(source) IN ('text', 'blob') AND length(CAST(source AS BLOB)) BETWEEN 1 AND 400 AND typeof(next) = 'integer');
-- :repair_positions
UPDATE positions SET next = 0 WHERE typeof(next) <> 'integer' AND typeof(source) IN ('text', 'blob') AND length(CAST(source AS BLOB)) BETWEEN 1 AND 400;
-- :repair_sources
DELETE FROM positions WHERE NOT (typeof(source) IN ('text', 'blob') AND length(CAST(source AS BLOB)) BETWEEN 1 AND 400);

-- :months_window
SELECT month, sealed_to FROM months WHERE month >= ?1 ORDER BY month DESC;
-- :months_all
SELECT month, sealed, users, plays, bytes, swept_to, sealed_to FROM months ORDER BY month DESC;
-- :month_tables
SELECT s.name, m.month FROM months m JOIN sqlite_schema s ON s.type = 'table' AND s.name IN (printf('plays_%04d%02d', m.month / 12, m.month % 12 + 1), printf('sealed_%04d%02d', m.month / 12, m.month % 12 + 1)) ORDER BY m.month DESC;
-- :month_insert
INSERT INTO months (month) VALUES (?1) ON CONFLICT (month) DO NOTHING;
-- :month_add
UPDATE months SET users = users + ?2, plays = max(plays + ?3, 0), bytes = bytes + ?4 WHERE month = ?1;
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
INSERT INTO {plays} (user_key, counted, filter) VALUES (?1, iif(?3 < x'80', ?2, NULL), ?3) ON CONFLICT (user_key) DO UPDATE SET counted = excluded.counted, filter = excluded.filter;
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
INSERT INTO quarantine (user_key, user, month, at, reason) SELECT user_key, user, ?3, ?4, 'its page of history.db could not be read' FROM users WHERE user_key BETWEEN ?1 AND ?2 AND (last_month >= ?3 OR user = '');
-- :salvage_month_tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND (name GLOB 'plays_[0-9]*' OR name GLOB 'sealed_[0-9]*');
-- :quarantine_get
SELECT month FROM quarantine WHERE user_key = ?1 AND (month >= ?2 OR month = 0) AND accepted IS NULL ORDER BY month DESC LIMIT 1;
-- :quarantine_any
SELECT 1 FROM quarantine WHERE user_key = ?1 AND month = ?2 LIMIT 1;
-- :quarantine_open
SELECT DISTINCT month FROM quarantine WHERE user_key = ?1 AND accepted IS NULL ORDER BY month;
-- :losses
SELECT DISTINCT user_key, month FROM quarantine WHERE accepted IS NOT NULL UNION SELECT user_key, -1 FROM users WHERE user = '' ORDER BY 1, 2;
-- :loss_delete
DELETE FROM quarantine WHERE user_key = ?1 AND month = ?2 AND accepted IS NOT NULL;
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
-- LEFT JOIN: a month is read in its order, not all users with a look-up at random in the month for each (6 times slower
-- for a million). Who asks for one user gives the key: WHERE user_key = unseen_key('u1').
-- :view_plays
SELECT 'CREATE VIEW plays AS
    -- What each user played, a row a month: WHERE user_key = unseen_key(''u1'') AND unseen_has(filter, ''v9''). Not what
    -- is still staged.
' || coalesce(group_concat(arm, '
UNION ALL '), 'SELECT '''' AS month, user, 0 AS items, 0 AS bytes, x'''' AS filter, user_key FROM users WHERE false')
FROM (SELECT printf('SELECT ''%.4s-%.2s'' AS month, users.user AS user, items, length(filter) AS bytes, filter, user_key FROM %s LEFT JOIN users USING (user_key)', substr(name, -6), substr(name, -2), name) AS arm
    FROM sqlite_schema WHERE type = 'table' AND (name GLOB 'plays_[0-9]*' OR name GLOB 'sealed_[0-9]*')
    ORDER BY substr(name, -6) DESC, name);
-- Of the slots: an arm a slot, over its tables in the order of their parts. A compound has 500 terms at most, and a slot
-- 256 tables.
-- :view_staged
SELECT 'CREATE VIEW staged AS
    -- Every play and delivery that is durable but not yet flushed, as it came.
' || coalesce(group_concat(arm, '
UNION ALL '), 'SELECT 0 AS slot, 0 AS id, '''' AS time, '''' AS kind, '''' AS user, '''' AS item, 0 AS at, 0 AS group_hash WHERE false')
FROM (SELECT printf('SELECT %d AS slot, id, datetime(at / 1000, ''unixepoch'') AS time, CASE kind WHEN 1 THEN ''play'' ELSE ''delivery'' END AS kind, user, iif(kind = 9, substr(item, 21), item) AS item, at, iif(kind = 9, CAST(substr(item, 1, 20) AS INTEGER), NULL) AS group_hash FROM %s', slot, tables) AS arm FROM (
    SELECT slot, (SELECT iif(count(*) = 1, max(name), '(SELECT * FROM ' || group_concat(name, ' UNION ALL SELECT * FROM ') || ')') FROM (
        SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[0-9]*' AND CAST(substr(name, 8) AS INTEGER) = slot ORDER BY length(name), name)) AS tables
    FROM (SELECT DISTINCT CAST(substr(name, 8) AS INTEGER) AS slot FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[0-9]*' ORDER BY 1)));
-- :view_ring
SELECT 'CREATE VIEW ring AS
    -- The slots of the ring. closed: it waits for its flush, or is being flushed or emptied. Reads every staged row.
SELECT slot, CASE WHEN slot = (SELECT t.value % s.value FROM meta t, meta s WHERE t.name = ''turn'' AND s.name = ''slots'') THEN ''open'' WHEN rows > 0 THEN ''closed'' ELSE ''empty'' END AS state, rows, users, datetime(oldest / 1000, ''unixepoch'') AS oldest, datetime(newest / 1000, ''unixepoch'') AS newest FROM (
' || coalesce(group_concat(arm, '
UNION ALL '), 'SELECT 0 AS slot, 0 AS rows, 0 AS users, 0 AS oldest, 0 AS newest WHERE false') || ')'
FROM (SELECT printf('SELECT %d AS slot, count(*) AS rows, count(DISTINCT user) AS users, min(at) AS oldest, max(at) AS newest FROM %s', slot, tables) AS arm FROM (
    SELECT slot, (SELECT iif(count(*) = 1, max(name), '(SELECT * FROM ' || group_concat(name, ' UNION ALL SELECT * FROM ') || ')') FROM (
        SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[0-9]*' AND CAST(substr(name, 8) AS INTEGER) = slot ORDER BY length(name), name)) AS tables
    FROM (SELECT DISTINCT CAST(substr(name, 8) AS INTEGER) AS slot FROM sqlite_schema WHERE type = 'table' AND name GLOB 'staged_[0-9]*' ORDER BY 1)));
