CREATE TABLE IF NOT EXISTS {plays} (
    -- A user's plays of a month as a compressed Bloom filter: unseen_has(filter, item), unseen_count(filter).
    -- items: how many positions it has; a short filter, from x'80' on, says it in its first byte, any other has it in
    -- counted.
    user_key INTEGER PRIMARY KEY, counted INTEGER, filter BLOB NOT NULL,
    items INTEGER AS (coalesce(counted, instr('123456789ABCDEF', substr(hex(substr(filter, 1, 1)), 2)))) VIRTUAL);
