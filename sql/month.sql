-- One month: what each user played in it, as a compressed Bloom filter (docs/format.md); items is how many positions it holds.
CREATE TABLE IF NOT EXISTS {plays} (user_key INTEGER PRIMARY KEY, items INTEGER NOT NULL, filter BLOB NOT NULL);
