-- staging.db, from schema 3 to 4: users who come from another Redis.

CREATE TABLE noted (
    -- Users whose plays still stand in the old Redis, or did. id: in the order in which they were noted; user: TEXT, or
    -- BLOB when it is no UTF-8; state: 0 waits, 1 migrated, 2 left because of a problem, 3 ended by FORGET: then user is
    -- the key of the user, INTEGER, and the id is gone.
    id INTEGER PRIMARY KEY, user NOT NULL, state INTEGER NOT NULL);
CREATE TABLE legacy_problems (
    -- Keys of the old Redis that could not be taken over as they are, each once. what: what was found instead of what was
    -- expected; at: unix ms.
    key NOT NULL, what TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (key)) WITHOUT ROWID;
