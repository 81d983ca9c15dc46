-- staging.db, from schema 4 to 5: what waits to be repeated in the old Redis.

CREATE TABLE mirror (
    -- In the order in which it happened; emptied as the old Redis takes it. id: of the staged row; kind: 1 play,
    -- 2 delivery, 3 a user was forgotten, 4 an item of a user was; user, item: TEXT, or BLOB when no UTF-8; at: unix ms.
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, user NOT NULL, item, at INTEGER NOT NULL);
