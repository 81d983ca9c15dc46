-- staging.db, from schema 5 to 6: what an operator reads in the shell about users who come from another Redis.

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
