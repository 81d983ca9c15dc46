CREATE TABLE IF NOT EXISTS {plays} (
    -- A user's plays of a month as a compressed Bloom filter: unseen_has(filter, item), unseen_count(filter).
    -- items: how many positions it has.
    user_key INTEGER PRIMARY KEY, items INTEGER NOT NULL, filter BLOB NOT NULL);
