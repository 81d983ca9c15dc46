-- staging.db, version 3: a forget of items says from which of the user's deliveries on its list goes, so that a start
-- which carries it out drops those that no longer counted. cut: the lowest stamp (unix ms * 1048576 + the low 20 bits of
-- the row id) of a delivery that did; 0: the list was not full.
ALTER TABLE forgets ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
