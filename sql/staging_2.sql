-- staging.db, from schema 1 to 2: scroll sessions over a restart.

-- Written at a clean stop, taken back and emptied at the next start. ids is a set of numbers in the form of a live
-- filter (docs/format.md), used the unix ms of the last use.
CREATE TABLE sessions (id INTEGER PRIMARY KEY, session NOT NULL, ids BLOB NOT NULL, used INTEGER NOT NULL);
