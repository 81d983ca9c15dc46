-- history.db, from schema 1 to 2: the sealing of finished months, and losses that are accepted.

-- The sealing's cursor: rows with user_key <= sealed_to are in the table sealed_YYYYMM, the others still in
-- plays_YYYYMM. NULL before the sealing begins, and once it is done: then all are in plays_YYYYMM, and sealed is 1.
ALTER TABLE months ADD COLUMN sealed_to INTEGER;

-- When `unseen check --repair` accepted the loss (unix ms); until then questions that need the blob get an error.
ALTER TABLE quarantine ADD COLUMN accepted INTEGER;

DROP VIEW month_report;
CREATE VIEW month_report AS SELECT printf('%04d-%02d', month / 12, month % 12 + 1) AS month, CASE WHEN swept_to IS NOT NULL THEN 'expiring' WHEN sealed THEN 'sealed' WHEN sealed_to IS NOT NULL THEN 'sealing' ELSE 'live' END AS state, users, plays, bytes, round(bytes * 1.0 / max(plays, 1), 2) AS bytes_a_play FROM months ORDER BY months.month DESC;
