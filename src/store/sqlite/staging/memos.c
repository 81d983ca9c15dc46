/* Small values of the folder (store/memos.h): rows of the table meta, written by the stager, since it alone writes the
 * file. */
#include "store/memos.h"

#include "store/sqlite/read/reader.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

void memo_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_memo *memo = (struct store_memo *)m;
    struct db *db = &s->stager.db;
    struct err *err = &memo->call.err;
    if (db_begin(db, err) == 0) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_META_SET, err);
        if (stmt != NULL) {
            sqlite3_bind_text(stmt, 1, memo->name, -1, SQLITE_STATIC);
            sqlite3_bind_text64(stmt, 2, memo->value.data, memo->value.len, SQLITE_STATIC, SQLITE_UTF8);
        }
        if (db_run(db, stmt, err) == 0) {
            db_commit(db, err);
        } else {
            db_rollback(db);
        }
    }
    memo->call.done(&memo->call);
}

static void memo_keep(struct store *base, struct store_memo *memo)
{
    memo->call.err = (struct err){0};
    memo->call.message.kind = STORE_CALL;
    memo->call.message.what = WANTS_MEMO;
    thread_queue_put(&sqlite_store(base)->stager.queue, &memo->call.message);
}

const struct store_memos_ops sqlite_memos_ops = {.keep = memo_keep, .read = reader_memo};
