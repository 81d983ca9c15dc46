/* Every command's exact reply, in RESP2 and in RESP3: a table that runs from top to bottom, once for each version, over
 * a real server and a store in memory. Each row has a connection of its own, on which the client says all and then
 * closes its half; \1 stands for anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_store.h"
#include "tests/lib/server_fixture.h"

struct row {
    const char *request;
    const char *resp2;
    const char *resp3; /* NULL: the same */
};

#define ANY "\1"
#define N_COMMANDS "49"
#define N_DOCS "98"
#define COUNT_ERROR(name) "-ERR wrong number of arguments for '" name "' command\r\n"
#define LONG_64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define LONG_256 LONG_64 LONG_64 LONG_64 LONG_64

#define SLOT_2(n, state, rows, users, error)                                                                           \
    "*18\r\n$4\r\nslot\r\n:" n "\r\n$5\r\nstate\r\n" state "$4\r\nrows\r\n:" rows "\r\n$5\r\nusers\r\n:" users         \
    "\r\n$6\r\nmemory\r\n:4096\r\n$5\r\nsince\r\n:1795262300000\r\n$5\r\nretry\r\n:0\r\n$10\r\nlast_error\r\n" error   \
    "$5\r\nclock\r\n$6\r\nsteady\r\n"
#define SLOT_3(n, state, rows, users, error)                                                                           \
    "%9\r\n$4\r\nslot\r\n:" n "\r\n$5\r\nstate\r\n" state "$4\r\nrows\r\n:" rows "\r\n$5\r\nusers\r\n:" users          \
    "\r\n$6\r\nmemory\r\n:4096\r\n$5\r\nsince\r\n:1795262300000\r\n$5\r\nretry\r\n:0\r\n$10\r\nlast_error\r\n" error   \
    "$5\r\nclock\r\n$6\r\nsteady\r\n"
#define RING_2                                                                                                         \
    "*2\r\n" SLOT_2("0", "$4\r\nopen\r\n", "7", "2", "$0\r\n\r\n")                                                     \
        SLOT_2("1", "$6\r\nfailed\r\n", "9", "1", "$9\r\ndisk full\r\n")
#define RING_3                                                                                                         \
    "*2\r\n" SLOT_3("0", "$4\r\nopen\r\n", "7", "2", "$0\r\n\r\n")                                                     \
        SLOT_3("1", "$6\r\nfailed\r\n", "9", "1", "$9\r\ndisk full\r\n")

static const struct row rows[] = {
    /* The connection. */
    {"PING\r\n", "+PONG\r\n", NULL},
    {"ping hello\r\n", "$5\r\nhello\r\n", NULL},
    {"PING a b\r\n", COUNT_ERROR("ping"), NULL},
    {"ECHO hi\r\n", "$2\r\nhi\r\n", NULL},
    {"ECHO\r\n", COUNT_ERROR("echo"), NULL},
    {"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "$0\r\n\r\n", NULL},
    {"QUIT\r\nPING\r\n", "+OK\r\n", NULL},
    {"RESET\r\n", "+RESET\r\n", NULL},
    {"RESET a\r\n", COUNT_ERROR("reset"), NULL},
    {"CLIENT SETNAME x\r\nRESET\r\nCLIENT GETNAME\r\n", "+OK\r\n+RESET\r\n$-1\r\n", NULL},
    {"SELECT 0\r\n", "+OK\r\n", NULL},
    {"TIME\r\n", "*2\r\n$10\r\n" ANY "\r\n$" ANY "\r\n", NULL},
    {"TIME x\r\n", COUNT_ERROR("time"), NULL},
    {"SELECT 1\r\n", "-ERR DB index is out of range\r\n", NULL},
    {"SELECT -1\r\n", "-ERR DB index is out of range\r\n", NULL},
    {"SELECT x\r\n", "-ERR value is not an integer or out of range\r\n", NULL},
    {"SELECT\r\n", COUNT_ERROR("select"), NULL},
    {"AUTH x\r\n",
     "-ERR AUTH <password> called without any password configured for the default user. Are you sure your "
     "configuration is correct?\r\n",
     NULL},
    {"AUTH default x\r\n", "+OK\r\n", NULL},
    {"AUTH somebody x\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", NULL},
    {"AUTH a b c\r\n", "-ERR syntax error\r\n", NULL},
    {"AUTH\r\n", COUNT_ERROR("auth"), NULL},
    {"HELLO\r\n",
     "*14\r\n$6\r\nserver\r\n$6\r\nunseen\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:2\r\n$2\r\n"
     "id\r\n:" ANY "\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
     "%7\r\n$6\r\nserver\r\n$6\r\nunseen\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n$2\r\n"
     "id\r\n:" ANY "\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"},
    {"HELLO 2\r\nCLIENT GETNAME\r\n", "*14\r\n" ANY ":2\r\n" ANY "*0\r\n$-1\r\n", NULL},
    {"HELLO 3 AUTH default x SETNAME bob\r\nCLIENT GETNAME\r\n", "%7\r\n" ANY ":3\r\n" ANY "*0\r\n$3\r\nbob\r\n", NULL},
    {"HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n", NULL},
    {"HELLO x\r\n", "-ERR Protocol version is not an integer or out of range\r\n", NULL},
    {"HELLO 3 FOO\r\n", "-ERR Syntax error in HELLO option 'FOO'\r\n", NULL},
    {"HELLO 3 AUTH x\r\n", "-ERR Syntax error in HELLO option 'AUTH'\r\n", NULL},
    {"HELLO 3 AUTH x y\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", NULL},
    {"HELLO 3 AUTH default x SETNAME a AUTH default y\r\n", "-ERR AUTH is given twice\r\n", NULL},
    {"HELLO 3 SETNAME a SETNAME a\r\n", "-ERR SETNAME is given twice\r\n", NULL},
    {"HELLO 3 SETNAME 'a b'\r\n", "-ERR Client names cannot contain spaces, newlines or special characters.\r\n", NULL},

    /* CLIENT. */
    {"CLIENT\r\n", COUNT_ERROR("client"), NULL},
    {"CLIENT FOO a\r\n", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP.\r\n", NULL},
    {"CLIENT MAINT_NOTIFICATIONS ON\r\n", "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n", NULL},
    {"CLIENT HELP\r\n",
     "*31\r\n+CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n+CACHING yes|no\r\n" ANY
     "+GETNAME\r\n+    The connection's name.\r\n" ANY "+NO-EVICT on|off\r\n" ANY "+HELP\r\n+    Print this help.\r\n",
     NULL},
    {"CLIENT ID\r\n", ":" ANY "\r\n", NULL},
    {"CLIENT ID x\r\n", COUNT_ERROR("client|id"), NULL},
    {"CLIENT GETNAME\r\n", "$-1\r\n", "_\r\n"},
    {"CLIENT SETNAME bob\r\nCLIENT GETNAME\r\n", "+OK\r\n$3\r\nbob\r\n", NULL},
    {"CLIENT SETNAME bob\r\nCLIENT SETNAME ''\r\nCLIENT GETNAME\r\n", "+OK\r\n+OK\r\n$-1\r\n", "+OK\r\n+OK\r\n_\r\n"},
    {"CLIENT SETNAME\r\n", COUNT_ERROR("client|setname"), NULL},
    {"CLIENT SETNAME 'a b'\r\n", "-ERR Client names cannot contain spaces, newlines or special characters.\r\n", NULL},
    {"CLIENT SETINFO LIB-NAME redis-py\r\nCLIENT SETINFO lib-ver 5.0\r\n", "+OK\r\n+OK\r\n", NULL},
    {"CLIENT SETINFO LIB-NAME 'a b'\r\n", "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n",
     NULL},
    {"CLIENT SETINFO foo x\r\n", "-ERR Unrecognized option 'foo'\r\n", NULL},
    {"CLIENT SETNAME bob\r\nCLIENT INFO\r\n",
     "+OK\r\n$" ANY "\r\nid=" ANY " addr=" ANY "/socket:0 laddr=" ANY "/socket:0 fd=" ANY " name=bob age=0 idle=0 "
     "flags=U db=0 " ANY " cmd=client|info user=default redir=-1 resp=2 lib-name= lib-ver=\n\r\n",
     "+OK\r\n=" ANY "\r\ntxt:id=" ANY " cmd=client|info user=default redir=-1 resp=3 lib-name= lib-ver=\n\r\n"},
    {"CLIENT SETINFO lib-name js\r\nCLIENT LIST\r\n", "+OK\r\n$" ANY "\r\nid=" ANY " lib-name=js lib-ver=\n\r\n",
     "+OK\r\n=" ANY "\r\ntxt:id=" ANY " lib-name=js lib-ver=\n\r\n"},
    {"CLIENT LIST TYPE normal\r\n", "$" ANY "id=" ANY "\r\n", "=" ANY "id=" ANY "\r\n"},
    {"CLIENT LIST TYPE pubsub\r\n", "$0\r\n\r\n", "=4\r\ntxt:\r\n"},
    {"CLIENT LIST TYPE foo\r\n", "-ERR Unknown client type 'foo'\r\n", NULL},
    {"CLIENT LIST ID 999999 999998\r\n", "$0\r\n\r\n", "=4\r\ntxt:\r\n"},
    {"CLIENT LIST ID x\r\n", "-ERR Invalid client ID\r\n", NULL},
    {"CLIENT LIST FOO\r\n", "-ERR syntax error\r\n", NULL},
    {"CLIENT NO-EVICT on\r\nCLIENT NO-TOUCH OFF\r\nCLIENT NO-EVICT maybe\r\n", "+OK\r\n+OK\r\n-ERR syntax error\r\n",
     NULL},
    {"CLIENT GETREDIR\r\n", ":-1\r\n", NULL},
    {"CLIENT TRACKING OFF\r\nCLIENT TRACKING maybe\r\nCLIENT TRACKING ON OPTIN\r\n",
     "+OK\r\n-ERR syntax error\r\n-ERR CLIENT TRACKING is not supported: " ANY "\r\n", NULL},
    {"CLIENT REPLY ON\r\nCLIENT REPLY maybe\r\nCLIENT REPLY OFF\r\nPING\r\n",
     "+OK\r\n-ERR syntax error\r\n-ERR CLIENT REPLY OFF and SKIP are not supported: " ANY "\r\n+PONG\r\n", NULL},
    {"CLIENT CACHING YES\r\nCLIENT PAUSE 10 WRITE\r\n",
     "-ERR CLIENT CACHING can be called only " ANY "\r\n-ERR CLIENT PAUSE is not supported: " ANY "\r\n", NULL},
    {"CLIENT EVICT\r\n", "-ERR unknown subcommand 'EVICT'. Try CLIENT HELP.\r\n", NULL},
    {"CLIENT KILL\r\n", COUNT_ERROR("client|kill"), NULL},
    {"CLIENT KILL 1.1.1.1:1\r\nCLIENT KILL ID\r\nCLIENT KILL ''\r\n",
     "-ERR No such client\r\n-ERR No such client\r\n-ERR No such client\r\n", NULL},
    {"CLIENT KILL ID 999999\r\nCLIENT KILL ADDR 1.1.1.1:1 LADDR 1.1.1.1:2 SKIPME no\r\n", ":0\r\n:0\r\n", NULL},
    {"CLIENT KILL ID x\r\nCLIENT KILL ID 0\r\n",
     "-ERR client-id should be greater than 0\r\n-ERR client-id should be greater than 0\r\n", NULL},
    {"CLIENT KILL MAXAGE 0\r\n", "-ERR maxage should be greater than 0\r\n", NULL},
    {"CLIENT KILL MAXAGE 86400\r\nCLIENT KILL USER default ID 999999\r\nCLIENT KILL TYPE pubsub SKIPME no\r\n",
     ":0\r\n:0\r\n:0\r\n", NULL},
    {"CLIENT KILL USER nobody\r\nCLIENT KILL USER ''\r\n", "-ERR No such user 'nobody'\r\n-ERR No such user ''\r\n",
     NULL},
    {"CLIENT KILL TYPE foo\r\n", "-ERR Unknown client type 'foo'\r\n", NULL},
    {"CLIENT KILL ADDR 1:1 FOO 1\r\nCLIENT KILL ADDR 1:1 ID\r\nCLIENT KILL SKIPME maybe\r\n",
     "-ERR syntax error\r\n-ERR syntax error\r\n-ERR syntax error\r\n", NULL},
    {"PING\r\nCLIENT KILL TYPE normal USER default SKIPME no\r\nPING\r\n", "+PONG\r\n:1\r\n", NULL},

    /* Unknown ones, wrong counts, the protocol. */
    {"FOO a 'b c' d\r\n", "-ERR unknown command 'FOO', with args beginning with: 'a' 'b c' 'd' \r\n", NULL},
    {"foo\r\n", "-ERR unknown command 'foo', with args beginning with: \r\n", NULL},
    {"BAN s 1\r\n", "-ERR unknown command 'BAN', with args beginning with: 's' '1' \r\n", NULL},
    {"*2\r\n$3\r\nFOO\r\n$5\r\na\r\nb'\r\n", "-ERR unknown command 'FOO', with args beginning with: 'a  b'' \r\n",
     NULL},
    {"*1\r\n$5\r\nPING\n\r\n", "-ERR unknown command 'PING ', with args beginning with: \r\n", NULL},
    {"\r\n*0\r\n*-1\r\n \r\nPING\r\n", "+PONG\r\n", NULL},
    {"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n", NULL},
    {"PING\r\n*1\r\nfoo\r\nPING\r\n", "+PONG\r\n-ERR Protocol error: expected '$', got 'f'\r\n", NULL},
    {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "-ERR Protocol error: this port speaks the Redis protocol, not HTTP\r\n",
     NULL},
    {"PING 'a\r\nPING\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n", NULL},
    {"*2\r\n$4\r\nECHO\r\n$99\r\nhalf a request", "", NULL},

    /* Recording. */
    {"PLAYED u a\r\n", ":1\r\n", NULL},
    {"PLAYED u a b c\r\n", ":3\r\n", NULL},
    {"*3\r\n$6\r\nplayed\r\n$1\r\nu\r\n$3\r\n\r\n\n\r\n", ":1\r\n", NULL},
    {"PLAYED u\r\n", COUNT_ERROR("played"), NULL},
    {"PLAYED '' a\r\n", "-ERR user is empty" ANY "\r\n", NULL},
    {"PLAYED bad a '' c\r\nUNSEEN bad a c\r\n", "-ERR item 2 is empty" ANY "\r\n*2\r\n$1\r\na\r\n$1\r\nc\r\n", NULL},
    {"PLAYED bad a " LONG_256 "\r\nSEEN bad a\r\n", "-ERR item 2 " ANY "255" ANY "\r\n*1\r\n:0\r\n", NULL},
    {"PLAYED " LONG_256 " a\r\n", "-ERR user " ANY "255" ANY "\r\n", NULL},
    {"DELIVERED u d e\r\n", ":2\r\n", NULL},
    {"DELIVERED u\r\n", COUNT_ERROR("delivered"), NULL},
    {"PLAYEDAT u 1795176000000 p1 p2\r\n", ":2\r\n", NULL},
    {"PLAYEDAT u 1795176000000\r\n", COUNT_ERROR("playedat"), NULL},
    {"PLAYEDAT u soon p3\r\n", "-ERR unix_ms must be a whole number of milliseconds since 1970, got 'soon'\r\n", NULL},
    {"PLAYEDAT u 1795176000 p3\r\n", "-ERR " ANY "seconds" ANY "\r\n", NULL},
    {"PLAYEDAT u 1895176000000 p3\r\n", "-ERR " ANY "ahead" ANY "\r\n", NULL},
    {"PLAYEDAT u 1595176000000 p3\r\n", "-ERR " ANY "\r\n", NULL},
    {"PLAYEDAT bad 1795176000000 p ''\r\nSEEN bad p\r\n", "-ERR item 2 is empty" ANY "\r\n*1\r\n:0\r\n", NULL},
    {"PLAYED u x\r\nPLAYED u\r\nPLAYED u y\r\n", ":1\r\n" COUNT_ERROR("played") ":1\r\n", NULL},
    {"PLAYED u x1\r\nUNSEEN u x1 n\r\nPLAYED u x2\r\nSEEN u x2\r\n", ":1\r\n*1\r\n$1\r\nn\r\n:1\r\n*1\r\n:1\r\n", NULL},

    /* Asking. */
    {"UNSEEN u a n b m n\r\n", "*3\r\n$1\r\nn\r\n$1\r\nm\r\n$1\r\nn\r\n", NULL},
    {"*6\r\n$6\r\nUNSEEN\r\n$1\r\nu\r\n$1\r\na\r\n$12\r\nnnnnnnnnnnnn\r\n$1\r\nm\r\n$1\r\nb\r\n",
     "*2\r\n$12\r\nnnnnnnnnnnnn\r\n$1\r\nm\r\n", NULL},
    {"UNSEEN u a b\r\n", "*0\r\n", NULL},
    {"UNSEEN nobody a b\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", NULL},
    {"UNSEEN u\r\n", COUNT_ERROR("unseen"), NULL},
    {"UNSEEN u a ''\r\n", "-ERR item 2 is empty" ANY "\r\n", NULL},
    {"UNSEEN old m1 m2\r\n", "*1\r\n$2\r\nm2\r\n", NULL},
    {"UNSEEN broken a\r\n", "-ERR user broken, month 2026-10: the filter is damaged\r\n", NULL},
    {"UNSEEN unread a\r\n", "-ERR not answered: history.db: disk I/O error\r\n", NULL},
    {"SEEN u a n d p1 a\r\n", "*5\r\n:1\r\n:0\r\n:1\r\n:1\r\n:1\r\n", NULL},
    {"SEEN u\r\n", COUNT_ERROR("seen"), NULL},
    {"FILTER u ITEMS a n b m\r\n", "*2\r\n$1\r\nn\r\n$1\r\nm\r\n", NULL},
    {"filter u reply indexes items a n b m\r\n", "*2\r\n:1\r\n:3\r\n", NULL},
    {"FILTER u REPLY ITEMS ITEMS a n\r\n", "*1\r\n$1\r\nn\r\n", NULL},
    {"FILTER u REPLY BITMAP ITEMS a n b m a a a n n\r\n", "$2\r\n\x51\x80\r\n", NULL},
    {"FILTER u LIMIT 2 ITEMS a n b m o p\r\n", "*2\r\n$1\r\nn\r\n$1\r\nm\r\n", NULL},
    {"FILTER u LIMIT 1 REPLY INDEXES ITEMS a n b m\r\n", "*1\r\n:1\r\n", NULL},
    {"FILTER u LIMIT 100000 ITEMS a n\r\n", "*1\r\n$1\r\nn\r\n", NULL},
    {"FILTER u REPLY BITMAP SEED 00000000 HASHES 12345678 ITEMS a\r\n", "-ERR HASHES and ITEMS can't both be given\r\n",
     NULL},
    {"FILTER u HASHES 12345678 HASHES 12345678\r\n", "-ERR HASHES is given twice\r\n", NULL},
    {"FILTER u SEED 00000000 ITEMS a\r\n", "-ERR SEED is of HASHES, and none are given\r\n", NULL},
    {"FILTER u SEED 00000000 POOL p\r\n", "-ERR SEED is of HASHES, and none are given\r\n", NULL},
    {"FILTER u REPLY BITMAP SEED 00000000\r\n", "-ERR FILTER needs ITEMS and at least one item behind it\r\n", NULL},
    {"FILTER u REPLY BITMAP POOL p SEED 00000000 HASHES 12345678\r\n",
     "-ERR a question is about hashes or about pools, and not both\r\n", NULL},
    {"FILTER u REPLY BITMAP HASHES 12345678\r\n",
     "-ERR HASHES needs SEED, the fingerprint of the seed that they were made with\r\n", NULL},
    {"FILTER u REPLY BITMAP SEED 0000000g HASHES 12345678\r\n",
     "-ERR SEED is 8 lower-case hex digits, got '0000000g'\r\n", NULL},
    {"FILTER u SEED 00000000 HASHES 12345678\r\n",
     "-ERR REPLY ITEMS can't be used with HASHES, which name no ids: expected INDEXES or BITMAP\r\n", NULL},
    {"FILTER u REPLY BITMAP SEED 00000000 HASHES 123456789\r\n",
     "-ERR HASHES has 9 bytes: expected a multiple of 8, the bytes of a hash\r\n", NULL},
    {"FILTER u HASHES\r\n", COUNT_ERROR("filter"), NULL},
    {"SEED x\r\n", COUNT_ERROR("seed"), NULL},
    {"FILTER u ITEMS ITEMS\r\n", "*1\r\n$5\r\nITEMS\r\n", NULL},
    {"FILTER u ITEMS\r\n", COUNT_ERROR("filter"), NULL},
    {"FILTER u LIMIT 1 ITEMS\r\n", "-ERR FILTER needs ITEMS and at least one item behind it\r\n", NULL},
    {"FILTER u LIMIT 1\r\n", "-ERR FILTER needs ITEMS and at least one item behind it\r\n", NULL},
    {"FILTER u REPLY FOO ITEMS a\r\n", "-ERR REPLY must be ITEMS, INDEXES or BITMAP, got 'FOO'\r\n", NULL},
    {"FILTER u LIMIT 0 ITEMS a\r\n", "-ERR LIMIT must be a whole number of at least 1, got '0'\r\n", NULL},
    {"FILTER u LIMIT -3 ITEMS a\r\n", "-ERR LIMIT must be a whole number of at least 1, got '-3'\r\n", NULL},
    {"FILTER u LIMIT x ITEMS a\r\n", "-ERR LIMIT must be a whole number of at least 1, got 'x'\r\n", NULL},
    {"FILTER u LIMIT 1 REPLY BITMAP ITEMS a\r\n", "-ERR LIMIT can't be used with REPLY BITMAP\r\n", NULL},
    {"FILTER u DELIVER ITEMS a\r\n", "-ERR DELIVER needs LIMIT of at most 100\r\n", NULL},
    {"FILTER u DELIVER LIMIT 101 ITEMS a\r\n", "-ERR DELIVER needs LIMIT of at most 100, got 101\r\n", NULL},
    {"FILTER u LIMIT 1 limit 2 ITEMS a\r\n", "-ERR LIMIT is given twice\r\n", NULL},
    {"FILTER u REPLY ITEMS LIMIT 1 REPLY ITEMS ITEMS a\r\n", "-ERR REPLY is given twice\r\n", NULL},
    {"FILTER u DELIVER LIMIT 1 DELIVER ITEMS a\r\n", "-ERR DELIVER is given twice\r\n", NULL},
    {"FILTER u SESSION s SESSION t ITEMS a\r\n", "-ERR SESSION is given twice\r\n", NULL},
    {"FILTER u SESSION SESSION ITEMS a n\r\n", "*1\r\n$1\r\nn\r\n", NULL},
    {"WHY u a SESSION s SESSION t\r\n", "-ERR SESSION is given twice\r\n", NULL},
    {"FILTER u ITEMS ''\r\n", "-ERR item 1 is empty" ANY "\r\n", NULL},
    {"FILTER v LIMIT 2 DELIVER ITEMS q r s\r\nSEEN v q r s\r\n", "*2\r\n$1\r\nq\r\n$1\r\nr\r\n*3\r\n:1\r\n:1\r\n:0\r\n",
     NULL},
    {"FILTER v DELIVER REPLY INDEXES LIMIT 9 ITEMS q r s\r\nPING\r\n", "*1\r\n:2\r\n+PONG\r\n", NULL},
    {"FILTER v LIMIT 2 DELIVER ITEMS q r s\r\n", "*0\r\n", NULL},

    /* Scroll sessions. */
    {"BLOCK s 7 9 7\r\nBLOCK s 9 0 4294967295\r\n", ":2\r\n:2\r\n", NULL},
    {"FILTER u SESSION s ITEMS 7 07 8 a\r\n", "*2\r\n$2\r\n07\r\n$1\r\n8\r\n", NULL},
    {"FILTER u SESSION s REPLY BITMAP ITEMS 7 07 8 a 0 n\r\n", "$1\r\n\x64\r\n", NULL},
    {"FILTER u LIMIT 1 SESSION s ITEMS 7 8 a\r\n", "*1\r\n$1\r\n8\r\n", NULL},
    {"FILTER u SESSION nobody ITEMS 7 8 a\r\n", "*2\r\n$1\r\n7\r\n$1\r\n8\r\n", NULL},
    {"FILTER u SESSION '' ITEMS 7\r\n", "-ERR session is empty" ANY "\r\n", NULL},
    {"FILTER u SESSION\r\n", COUNT_ERROR("filter"), NULL},
    {"WHY u 7 SESSION s\r\n", "*1\r\n$7\r\nblocked\r\n", "%1\r\n$7\r\nblocked\r\n,0\r\n"},
    {"WHY u a SESSION s\r\n", "*1\r\n$6\r\nstaged\r\n", "%1\r\n$6\r\nstaged\r\n,0\r\n"},
    {"WHY u 8 SESSION s\r\n", "*0\r\n", "%0\r\n"},
    {"WHY u 7 SESSION\r\n", "-ERR behind the item WHY takes SESSION id and POLICY name, got 'SESSION'\r\n", NULL},
    {"WHY u 7 IN s\r\n", "-ERR behind the item WHY takes SESSION id and POLICY name, got 'IN'\r\n", NULL},
    {"WHY u 7 SESSION ''\r\n", "-ERR session is empty" ANY "\r\n", NULL},
    {"BLOCK t 7 007 n 4294967296 007\r\n", ":4\r\n", NULL},
    {"FILTER u SESSION t ITEMS 07 n 007 7 o 4294967296\r\n", "*2\r\n$2\r\n07\r\n$1\r\no\r\n", NULL},
    {"WHY u n SESSION t\r\n", "*1\r\n$7\r\nblocked\r\n", "%1\r\n$7\r\nblocked\r\n,0\r\n"},
    {"UNBLOCK t 007 07\r\nWHY u 7 SESSION t\r\n", ":1\r\n*1\r\n$7\r\nblocked\r\n",
     ":1\r\n%1\r\n$7\r\nblocked\r\n,0\r\n"},
    {"UNBLOCK t\r\n", ":3\r\n", NULL},
    {"BLOCK s 7 ''\r\n", "-ERR id 2 is empty: an id has 1 to 255 bytes\r\n", NULL},
    {"BLOCK '' 7\r\n", "-ERR session is empty" ANY "\r\n", NULL},
    {"BLOCK s\r\n", COUNT_ERROR("block"), NULL},
    {"UNBLOCK s 7 8\r\n", ":1\r\n", NULL},
    {"FILTER u SESSION s ITEMS 7 9\r\n", "*1\r\n$1\r\n7\r\n", NULL},
    {"UNBLOCK s x\r\nUNBLOCK s x ''\r\n", ":0\r\n-ERR id 2 is empty" ANY "\r\n", NULL},
    {"UNBLOCK s\r\nUNBLOCK s\r\n", ":3\r\n:0\r\n", NULL},
    {"UNBLOCK\r\n", COUNT_ERROR("unblock"), NULL},

    /* Explaining. */
    {"WHY u n\r\n", "*0\r\n", "%0\r\n"},
    {"WHY u a\r\n", "*1\r\n$6\r\nstaged\r\n", "%1\r\n$6\r\nstaged\r\n,0\r\n"},
    {"WHY v q\r\n", "*1\r\n$9\r\ndelivered\r\n", "%1\r\n$9\r\ndelivered\r\n,0\r\n"},
    {"WHY old m1\r\n", "*2\r\n$7\r\n2026-10\r\n$7\r\n2026-09\r\n",
     "%2\r\n$7\r\n2026-10\r\n,2.3283064365386963e-10\r\n$7\r\n2026-09\r\n,4.656612873077393e-10\r\n"},
    {"WHY u\r\n", COUNT_ERROR("why"), NULL},
    {"WHY u ''\r\n", "-ERR item 1 is empty" ANY "\r\n", NULL},
    {"WHY broken a\r\n", "-ERR user broken, month 2026-10: the filter is damaged\r\n", NULL},
    {"WHY unread a\r\n", "-ERR not answered: history.db: disk I/O error\r\n", NULL},
    {"HISTORY nobody\r\n", "$-1\r\n", "_\r\n"},
    {"HISTORY v\r\n",
     "*10\r\n$4\r\nuser\r\n$1\r\nv\r\n$6\r\nmonths\r\n*0\r\n$6\r\nstaged\r\n:0\r\n$9\r\ndelivered\r\n:3\r\n$5\r\nerror"
     "\r\n$1\r\n0\r\n",
     "%5\r\n$4\r\nuser\r\n$1\r\nv\r\n$6\r\nmonths\r\n*0\r\n$6\r\nstaged\r\n:0\r\n$9\r\ndelivered\r\n:3\r\n$5\r\nerror"
     "\r\n,0\r\n"},
    {"HISTORY old\r\n",
     "*10\r\n$4\r\nuser\r\n$3\r\nold\r\n$6\r\nmonths\r\n*2\r\n"
     "*14\r\n$5\r\nmonth\r\n$7\r\n2026-10\r\n$5\r\nitems\r\n:1\r\n$5\r\nbytes\r\n:12\r\n$5\r\nerror\r\n$22\r\n"
     "2.3283064365386963e-10\r\n$6\r\nsealed\r\n:0\r\n$9\r\nin_window\r\n:1\r\n$7\r\nexpires\r\n:1809129600000\r\n"
     "*14\r\n$5\r\nmonth\r\n$7\r\n2026-09\r\n$5\r\nitems\r\n:2\r\n$5\r\nbytes\r\n:16\r\n$5\r\nerror\r\n$21\r\n"
     "4.656612873077393e-10\r\n$6\r\nsealed\r\n:0\r\n$9\r\nin_window\r\n:1\r\n$7\r\nexpires\r\n:1806537600000\r\n"
     "$6\r\nstaged\r\n:0\r\n$9\r\ndelivered\r\n:0\r\n$5\r\nerror\r\n$21\r\n6.984919309616089e-10\r\n",
     "%5\r\n$4\r\nuser\r\n$3\r\nold\r\n$6\r\nmonths\r\n*2\r\n"
     "%7\r\n$5\r\nmonth\r\n$7\r\n2026-10\r\n$5\r\nitems\r\n:1\r\n$5\r\nbytes\r\n:12\r\n$5\r\nerror\r\n"
     ",2.3283064365386963e-10\r\n$6\r\nsealed\r\n:0\r\n$9\r\nin_window\r\n:1\r\n$7\r\nexpires\r\n:1809129600000\r\n"
     "%7\r\n$5\r\nmonth\r\n$7\r\n2026-09\r\n$5\r\nitems\r\n:2\r\n$5\r\nbytes\r\n:16\r\n$5\r\nerror\r\n"
     ",4.656612873077393e-10\r\n$6\r\nsealed\r\n:0\r\n$9\r\nin_window\r\n:1\r\n$7\r\nexpires\r\n:1806537600000\r\n"
     "$6\r\nstaged\r\n:0\r\n$9\r\ndelivered\r\n:0\r\n$5\r\nerror\r\n,6.984919309616089e-10\r\n"},
    {"HISTORY\r\n", COUNT_ERROR("history"), NULL},
    {"HISTORY ''\r\n", "-ERR user is empty" ANY "\r\n", NULL},
    {"HISTORY broken\r\n", "-ERR user broken, month 2026-10: the filter is damaged\r\n", NULL},
    {"HISTORY unread\r\n", "-ERR not answered: history.db: disk I/O error\r\n", NULL},
    {"MONTHS\r\n",
     "*2\r\n*14\r\n$5\r\nmonth\r\n$7\r\n2026-11\r\n$5\r\nusers\r\n:3\r\n$5\r\nplays\r\n:40\r\n$5\r\nbytes\r\n:500\r\n"
     "$5\r\nstate\r\n$4\r\nlive\r\n$8\r\nprogress\r\n$1\r\n0\r\n$9\r\nin_window\r\n:1\r\n"
     "*14\r\n$5\r\nmonth\r\n$7\r\n2026-04\r\n$5\r\nusers\r\n:2\r\n$5\r\nplays\r\n:9\r\n$5\r\nbytes\r\n:80\r\n"
     "$5\r\nstate\r\n$8\r\nexpiring\r\n$8\r\nprogress\r\n$4\r\n0.25\r\n$9\r\nin_window\r\n:0\r\n",
     "*2\r\n%7\r\n$5\r\nmonth\r\n$7\r\n2026-11\r\n$5\r\nusers\r\n:3\r\n$5\r\nplays\r\n:40\r\n$5\r\nbytes\r\n:500\r\n"
     "$5\r\nstate\r\n$4\r\nlive\r\n$8\r\nprogress\r\n,0\r\n$9\r\nin_window\r\n:1\r\n"
     "%7\r\n$5\r\nmonth\r\n$7\r\n2026-04\r\n$5\r\nusers\r\n:2\r\n$5\r\nplays\r\n:9\r\n$5\r\nbytes\r\n:80\r\n"
     "$5\r\nstate\r\n$8\r\nexpiring\r\n$8\r\nprogress\r\n,0.25\r\n$9\r\nin_window\r\n:0\r\n"},
    {"MONTHS x\r\n", COUNT_ERROR("months"), NULL},

    /* The ring. */
    {"RING\r\n", RING_2, RING_3},
    {"RING FLUSH\r\nPING\r\n", RING_2 "+PONG\r\n", RING_3 "+PONG\r\n"},
    {"RING FOO\r\n", "-ERR unknown subcommand 'FOO'. Try RING HELP.\r\n", NULL},
    {"RING FLUSH x\r\n", COUNT_ERROR("ring|flush"), NULL},

    {"FEED\r\nPING\r\n", "*0\r\n+PONG\r\n", NULL},
    {"FEED x\r\n", COUNT_ERROR("feed"), NULL},

    /* Backups. */
    {"BACKUP /copy\r\nPING\r\n", "*6\r\n$5\r\nbytes\r\n:4096\r\n$2\r\nms\r\n:7\r\n$8\r\nproblems\r\n:0\r\n+PONG\r\n",
     "%3\r\n$5\r\nbytes\r\n:4096\r\n$2\r\nms\r\n:7\r\n$8\r\nproblems\r\n:0\r\n+PONG\r\n"},
    {"BACKUP ''\r\n", "-ERR the folder must be a path below backup_root, in plain characters, got ''\r\n", NULL},
    {"BACKUP \"/a\\x00b\"\r\n",
     "-ERR the folder must be a path below backup_root, in plain characters, got '/a\\x00b'\r\n", NULL},
    {"BACKUP /full\r\nINFO backup\r\n",
     "-ERR the disk of /full has room for 1 MiB, the copy takes some 9 MiB\r\n" ANY
     "# Backup\r\nbackup_phase:none\r\n" ANY "last_backup_time:1795255200\r\n" ANY "last_backup_result:full\r\n" ANY
     "last_backup_folder:/full\r\n\r\n",
     NULL},
    {"BACKUP \"/a\\r\\n# X\"\r\n", "-ERR the folder must be a path below backup_root, in plain characters, got '/a" ANY,
     NULL},
    {"BACKUP \"/a=b,c # X\"\r\nINFO backup\r\n", "*6\r\n" ANY "last_backup_folder:/a:b,c # X\r\n\r\n",
     "%3\r\n" ANY "last_backup_folder:/a:b,c # X\r\n\r\n"},
    {"BACKUP /busy\r\n", "-BUSY a backup to /other is under way\r\n", NULL},
    {"BACKUP\r\n", COUNT_ERROR("backup"), NULL},
    {"LOAD done\r\nPING\r\n", "*1\r\n:1\r\n+PONG\r\n", NULL},
    {"LOAD crowded done old over\r\nLOAD old\r\n", "*4\r\n:4\r\n:1\r\n:3\r\n:2\r\n*1\r\n:3\r\n", NULL},
    {"LOAD done nonsense\r\nPING\r\n", "-ERR the parcel of a user is damaged\r\n+PONG\r\n", NULL},
    {"MULTI\r\nLOAD done\r\nPING\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n*1\r\n:1\r\n+PONG\r\n", NULL},
    {"LOAD\r\n", COUNT_ERROR("load"), NULL},

    /* Forgetting. */
    {"FORGET u n a\r\nUNSEEN u n a b\r\n", ":1\r\n*2\r\n$1\r\nn\r\n$1\r\na\r\n", NULL},
    {"FORGET u\r\nHISTORY u\r\nFORGET u\r\n", ":1\r\n$-1\r\n:0\r\n", ":1\r\n_\r\n:0\r\n"},
    {"PLAYED u a\r\nFORGET u\r\nPLAYED u b\r\nUNSEEN u a b\r\n", ":1\r\n:1\r\n:1\r\n*1\r\n$1\r\na\r\n", NULL},
    {"FORGET nobody\r\n", ":0\r\n", NULL},
    {"FORGET\r\n", COUNT_ERROR("forget"), NULL},
    {"FORGET ''\r\n", "-ERR user is empty" ANY "\r\n", NULL},
    {"FORGET u a ''\r\n", "-ERR item 2 is empty" ANY "\r\n", NULL},

    /* MULTI. */
    {"MULTI\r\nPLAYED w a b\r\nUNSEEN w a c\r\nPING\r\nEXEC\r\nPING\r\n",
     "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n:2\r\n*1\r\n$1\r\nc\r\n+PONG\r\n+PONG\r\n", NULL},
    {"MULTI\r\nEXEC\r\n", "+OK\r\n*0\r\n", NULL},
    {"MULTI\r\nMULTI\r\nEXEC\r\n", "+OK\r\n-ERR MULTI calls can not be nested\r\n*0\r\n", NULL},
    {"EXEC\r\nDISCARD\r\n", "-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n", NULL},
    {"MULTI\r\nPLAYED w x\r\nDISCARD\r\nSEEN w x\r\n", "+OK\r\n+QUEUED\r\n+OK\r\n*1\r\n:0\r\n", NULL},
    {"MULTI\r\nPLAYED w x\r\nFOO\r\nEXEC\r\nSEEN w x\r\n",
     "+OK\r\n+QUEUED\r\n-ERR unknown command 'FOO', with args beginning with: \r\n-EXECABORT Transaction discarded "
     "because of previous errors.\r\n*1\r\n:0\r\n",
     NULL},
    {"MULTI\r\nPLAYED w\r\nEXEC\r\nEXEC\r\n",
     "+OK\r\n" COUNT_ERROR("played") "-EXECABORT Transaction discarded because of previous errors.\r\n"
                                     "-ERR EXEC without MULTI\r\n",
     NULL},
    {"MULTI\r\nPLAYED w '' \r\nPLAYED w y\r\nEXEC\r\n",
     "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n-ERR item 1 is empty" ANY "\r\n:1\r\n", NULL},
    {"MULTI\r\nFILTER w LIMIT 1 DELIVER ITEMS f g\r\nFORGET w\r\nSEEN w f\r\nEXEC\r\n",
     "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n*1\r\n$1\r\nf\r\n:1\r\n*1\r\n:0\r\n", NULL},
    {"MULTI\r\nPING\r\nRESET\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n+RESET\r\n-ERR EXEC without MULTI\r\n", NULL},
    {"MULTI\r\nPING\r\nQUIT\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n+OK\r\n", NULL},
    {"MULTI\r\nEXEC x\r\nEXEC\r\n",
     "+OK\r\n-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n"
     "-ERR EXEC without MULTI\r\n",
     NULL},
    {"MULTI\r\nMULTI\r\nMULTI x\r\nEXEC\r\n",
     "+OK\r\n-ERR MULTI calls can not be nested\r\n" COUNT_ERROR("multi") "-EXECABORT Transaction discarded because "
                                                                          "of previous errors.\r\n",
     NULL},

    /* The server. */
    {"FRONT\r\n", "-ERR the store \"fake\" keeps no front\r\n", NULL},
    {"FRONT REBUILD now\r\n", COUNT_ERROR("front|rebuild"), NULL},
    {"FRONT FOO\r\n", "-ERR unknown subcommand 'FOO'. Try FRONT HELP.\r\n", NULL},
    {"COMMAND COUNT\r\n", ":" N_COMMANDS "\r\n", NULL},
    {"COMMAND\r\n", "*" N_COMMANDS "\r\n*10\r\n$3\r\nacl\r\n:-2\r\n*1\r\n" ANY,
     "*" N_COMMANDS "\r\n*10\r\n$3\r\nacl\r\n:-2\r\n~1\r\n" ANY},
    {"COMMAND INFO played foo ring|flush\r\n",
     "*3\r\n*10\r\n$6\r\nplayed\r\n:-3\r\n*3\r\n+write\r\n+fast\r\n+loading\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*"
     "0\r\n$-1\r\n"
     "*10\r\n$10\r\nring|flush\r\n:2\r\n*2\r\n+write\r\n+admin\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
     "*3\r\n*10\r\n$6\r\nplayed\r\n:-3\r\n~3\r\n+write\r\n+fast\r\n+loading\r\n:1\r\n:1\r\n:1\r\n~0\r\n~0\r\n~0\r\n*"
     "0\r\n_\r\n"
     "*10\r\n$10\r\nring|flush\r\n:2\r\n~2\r\n+write\r\n+admin\r\n:0\r\n:0\r\n:0\r\n~0\r\n~0\r\n~0\r\n*0\r\n"},
    {"COMMAND INFO\r\n", "*" N_COMMANDS "\r\n" ANY, NULL},
    {"COMMAND DOCS why foo\r\n",
     "*2\r\n$3\r\nwhy\r\n*8\r\n$7\r\nsummary\r\n$37\r\nWhere the item is seen, newest first.\r\n" ANY,
     "%1\r\n$3\r\nwhy\r\n%4\r\n$7\r\nsummary\r\n$37\r\nWhere the item is seen, newest first.\r\n" ANY},
    {"COMMAND DOCS\r\n", "*" N_DOCS "\r\n$3\r\nacl\r\n*10\r\n" ANY, "%" N_COMMANDS "\r\n$3\r\nacl\r\n%5\r\n" ANY},
    {"COMMAND LIST\r\n", "*" ANY "\r\n$3\r\nacl\r\n$10\r\nacl|whoami\r\n$7\r\narchive\r\n" ANY "\r\nwhy\r\n", NULL},
    {"COMMAND LIST FILTERBY PATTERN *een\r\nCOMMAND LIST filterby pattern RING*\r\n",
     "*2\r\n$4\r\nseen\r\n$6\r\nunseen\r\n*2\r\n$4\r\nring\r\n$10\r\nring|flush\r\n", NULL},
    {"COMMAND LIST FILTERBY MODULE foo\r\nCOMMAND LIST FILTERBY ACLCAT admin\r\n", "*0\r\n*0\r\n", NULL},
    {"COMMAND LIST foo\r\nCOMMAND LIST FILTERBY foo a\r\nCOMMAND LIST FILTERBY PATTERN\r\n",
     "-ERR syntax error\r\n-ERR syntax error\r\n-ERR syntax error\r\n", NULL},
    {"COMMAND GETKEYS played u a b\r\nCOMMAND GETKEYS MEMORY USAGE u\r\n", "*1\r\n$1\r\nu\r\n*1\r\n$1\r\nu\r\n", NULL},
    {"COMMAND GETKEYS foo a\r\nCOMMAND GETKEYS ping\r\nCOMMAND GETKEYS played u\r\nCOMMAND GETKEYS memory foo\r\n",
     "-ERR Invalid command specified\r\n-ERR The command has no key arguments\r\n"
     "-ERR Invalid number of arguments specified for command\r\n-ERR Invalid command specified\r\n",
     NULL},
    {"COMMAND GETKEYS\r\n", COUNT_ERROR("command|getkeys"), NULL},
    {"DBSIZE\r\n", ":3\r\n", NULL},
    {"DBSIZE x\r\n", COUNT_ERROR("dbsize"), NULL},
    {"MEMORY USAGE nobody\r\n", "$-1\r\n", "_\r\n"},
    {"MEMORY USAGE old\r\nMEMORY USAGE old SAMPLES 5\r\n", ":" ANY "\r\n:" ANY "\r\n", NULL},
    {"MEMORY USAGE old SAMPLES\r\nMEMORY USAGE old SAMPLES -1\r\nMEMORY USAGE old FOO 1\r\n",
     "-ERR syntax error\r\n-ERR syntax error\r\n-ERR syntax error\r\n", NULL},
    {"MEMORY USAGE ''\r\n", "-ERR user is empty: an id has 1 to 255 bytes\r\n", NULL},
    {"MEMORY STATS\r\n",
     "*10\r\n$15\r\ntotal.allocated\r\n:" ANY "\r\n$14\r\nclients.normal\r\n:" ANY "\r\n$12\r\nstaged.bytes\r\n:" ANY
     "\r\n$9\r\nrss.bytes\r\n:" ANY "\r\n$13\r\nfragmentation\r\n$" ANY,
     "%5\r\n$15\r\ntotal.allocated\r\n:" ANY "\r\n$13\r\nfragmentation\r\n," ANY},
    {"MEMORY DOCTOR\r\n", "$" ANY "\r\nEvery part has a bound of its own: " ANY, "=" ANY "\r\ntxt:Every part " ANY},
    {"MEMORY FOO\r\n", "-ERR unknown subcommand 'FOO'. Try MEMORY HELP.\r\n", NULL},
    {"COMMAND FOO\r\n", "-ERR unknown subcommand 'FOO'. Try COMMAND HELP.\r\n", NULL},
    {"CONFIG GET delivered_max\r\n", "*2\r\n$13\r\ndelivered_max\r\n$3\r\n100\r\n",
     "%1\r\n$13\r\ndelivered_max\r\n$3\r\n100\r\n"},
    {"CONFIG GET SLOT* nothing requirepass\r\n",
     "*6\r\n$11\r\nrequirepass\r\n$0\r\n\r\n$5\r\nslots\r\n$1\r\n6\r\n$11\r\nslot_length\r\n$4\r\nauto\r\n",
     "%3\r\n$11\r\nrequirepass\r\n$0\r\n\r\n$5\r\nslots\r\n$1\r\n6\r\n$11\r\nslot_length\r\n$4\r\nauto\r\n"},
    {"CONFIG GET maxmemory\r\n", "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n", "%1\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n"},
    {"CONFIG GET slowlog-max-len SLOWLOG-log* slowlog-*\r\n",
     "*4\r\n$23\r\nslowlog-log-slower-than\r\n$5\r\n10000\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n",
     "%2\r\n$23\r\nslowlog-log-slower-than\r\n$5\r\n10000\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n"},
    {"CONFIG GET save appendonly\r\n", "*4\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n$4\r\nsave\r\n$0\r\n\r\n",
     "%2\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n$4\r\nsave\r\n$0\r\n\r\n"},
    {"CONFIG GET dir\r\n", "*0\r\n", "%0\r\n"},
    {"LATENCY LATEST\r\nLATENCY HISTORY command\r\nLATENCY RESET\r\nLATENCY RESET command\r\n",
     "*0\r\n*0\r\n:0\r\n:0\r\n", NULL},
    {"LATENCY HISTOGRAM months nonsense\r\n",
     "*2\r\n$6\r\nmonths\r\n*4\r\n$5\r\ncalls\r\n:" ANY "\r\n$14\r\nhistogram_usec\r\n*" ANY,
     "%1\r\n$6\r\nmonths\r\n%2\r\n$5\r\ncalls\r\n:" ANY "\r\n$14\r\nhistogram_usec\r\n%" ANY},
    {"LATENCY HISTOGRAM nonsense\r\n", "*0\r\n", "%0\r\n"},
    {"LATENCY DOCTOR\r\n", "$" ANY "\r\nNo events are kept " ANY, "=" ANY "\r\ntxt:No events are kept " ANY},
    {"LATENCY GRAPH command\r\n", "-ERR unknown subcommand 'GRAPH'. Try LATENCY HELP.\r\n", NULL},
    {"CONFIG GET\r\n", COUNT_ERROR("config|get"), NULL},
    {"CONFIG SET a b\r\n", "-ERR unknown subcommand 'SET'. Try CONFIG HELP.\r\n", NULL},
    {"INFO\r\n",
     "$" ANY "\r\n# Server\r\nredis_version:7.0.0\r\n" ANY "unseen_version:" UNSEEN_VERSION "\r\n" ANY
     "\r\n\r\n# Clients\r\nconnected_clients:" ANY "\r\n\r\n# Memory\r\nused_memory:" ANY
     "\r\n\r\n# Persistence\r\nloading:0\r\n" ANY "seed_fingerprint:" ANY "\r\n\r\n# Stats\r\n" ANY "rows_recorded:" ANY
     "\r\n\r\n# Replication\r\nrole:master\r\n" ANY "\r\n\r\n# CPU\r\n" ANY
     "\r\n\r\n# Errorstats\r\nerrorstat_ERR:count=" ANY "\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n# Ring\r\n" ANY
     "clock:steady\r\n" ANY "\r\n\r\n# Keyspace\r\n\r\n",
     "=" ANY "\r\ntxt:# Server\r\n" ANY "\r\n\r\n# Keyspace\r\n\r\n"},
    {"INFO persistence\r\n", "$" ANY "\r\n# Persistence\r\nloading:0\r\n" ANY,
     "=" ANY "\r\ntxt:# Persistence\r\nloading:0\r\n" ANY},
    {"INFO KEYSPACE replication\r\n",
     "$62\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n# Keyspace\r\n\r\n",
     "=66\r\ntxt:# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n# Keyspace\r\n\r\n"},
    {"INFO foo\r\n", "$0\r\n\r\n", "=4\r\ntxt:\r\n"},
    {"INFO modules\r\n", "$11\r\n# Modules\r\n\r\n", "=15\r\ntxt:# Modules\r\n\r\n"},
    {"INFO Readthrough\r\nINFO read_through\r\n", "$" ANY "\r\n# Readthrough\r\n" ANY "\r\n# Readthrough\r\n" ANY,
     "=" ANY "\r\ntxt:# Readthrough\r\n" ANY "\r\ntxt:# Readthrough\r\n" ANY},
    {"INFO commandstats\r\n",
     "$" ANY "\r\n# Commandstats\r\ncmdstat_other:calls=" ANY "\r\ncmdstat_played:calls=" ANY ",usec=" ANY
     ",usec_per_call=" ANY ",rejected_calls=" ANY ",failed_calls=" ANY "\r\ncmdstat_" ANY,
     "=" ANY "\r\ntxt:# Commandstats\r\ncmdstat_other:calls=" ANY "\r\ncmdstat_played:calls=" ANY},
    {"INFO latencystats errorstats\r\n",
     "$" ANY "\r\n# Errorstats\r\n" ANY "\r\n\r\n# Latencystats\r\nlatency_percentiles_usec_other:p50=" ANY ",p99=" ANY
     ",p99.9=" ANY "\r\nlatency_percentiles_usec_played:" ANY,
     "=" ANY "\r\ntxt:# Errorstats\r\n" ANY "\r\n\r\n# Latencystats\r\n" ANY},
    {"DEBUG ADVANCE 1000\r\n", "+OK\r\n", NULL},
    {"DEBUG JUMP -1000\r\n", "+OK\r\n", NULL},
    {"DEBUG JUMP 0\r\n", "+OK\r\n", NULL},
    {"DEBUG ADVANCE -1\r\n", "-ERR ms must be a whole number of milliseconds from 0 to 316224000000, got '-1'\r\n",
     NULL},
    {"DEBUG ADVANCE x\r\n", "-ERR ms must be a whole number of milliseconds from 0 to 316224000000, got 'x'\r\n", NULL},
    {"DEBUG SLEEP 0\r\n", "-ERR unknown subcommand 'SLEEP'. Try DEBUG HELP.\r\n", NULL},
    {"DEBUG\r\n", COUNT_ERROR("debug"), NULL},
};

static void set_up_store(struct store *store)
{
    fake_store_add_month(store, "old", 2026 * 12 + 8, "m1");
    fake_store_add_month(store, "old", 2026 * 12 + 8, "m3");
    fake_store_add_month(store, "old", 2026 * 12 + 9, "m1");
    fake_store_damage(store, "broken");
    fake_store_unreadable(store, "unread");
    static struct store_ring ring = {.turn = 1, .open = 0, .n_slots = 2};
    ring.slots[0] = (struct store_slot){
        .slot = 0, .state = SLOT_OPEN, .rows = 7, .users = 2, .bytes = 4096, .since_ms = 1795262300000};
    ring.slots[1] = (struct store_slot){.slot = 1,
                                        .state = SLOT_FAILED,
                                        .rows = 9,
                                        .users = 1,
                                        .bytes = 4096,
                                        .since_ms = 1795262300000,
                                        .error = "disk full"};
    fake_store_set_ring(store, &ring);
}

/* All of it is run twice: no reply differs when every user is large and asked about aside. */
static bool large;

static int enlarge(void **state)
{
    (void)state;
    large = true;
    return 0;
}

static void init(struct fixture *f)
{
    fixture_init(f);
    if (large) {
        fake_store_enlarge(f->store, NULL);
    }
}

static void run_table(int proto)
{
    static const char hello[] = "HELLO 3\r\n";
    struct fixture f;
    init(&f);
    set_up_store(f.store);
    fixture_start(&f);
    fixture_attach(&f);
    size_t wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf request = {0}, got = {0}, want = {0};
        bool three = proto == 3;
        buf_addf(&request, "%s%s", three ? hello : "", rows[i].request);
        buf_add(&request, "", 1);
        buf_addf(&want, "%s%s", three ? "%7\r\n" ANY "*0\r\n" : "",
                 three && rows[i].resp3 != NULL ? rows[i].resp3 : rows[i].resp2);
        buf_add(&want, "", 1);
        client_ask(&f, request.data, &got);
        wrong += !text_is(want.data, &got, request.data);
        buf_free(&request);
        buf_free(&got);
        buf_free(&want);
    }
    fixture_stop(&f);
    fixture_end(&f);
    assert_int_equal(wrong, 0);
}

static void replies_in_resp2(void **state)
{
    (void)state;
    run_table(2);
}

static void replies_in_resp3(void **state)
{
    (void)state;
    run_table(3);
}

/* Ids hold any byte, and come back as they came. */
static void binary_ids(void **state)
{
    (void)state;
    static const char request[] =
        "*4\r\n$6\r\nPLAYED\r\n$3\r\n\0\r\n\r\n$4\r\na\0b\n\r\n$1\r\n\xff\r\n"
        "*5\r\n$6\r\nUNSEEN\r\n$3\r\n\0\r\n\r\n$4\r\na\0b\n\r\n$4\r\na\0b\0\r\n$1\r\n\xff\r\n";
    static const char want[] = ":2\r\n*1\r\n$4\r\na\0b\0\r\n";
    struct fixture f;
    init(&f);
    fixture_start(&f);
    fixture_attach(&f);
    int fd = client_open(&f);
    client_send(fd, request, sizeof request - 1);
    shutdown(fd, SHUT_WR);
    struct buf got = {0};
    client_read_all(fd, &got);
    close(fd);
    assert_int_equal(got.len, sizeof want - 1);
    assert_memory_equal(got.data, want, got.len);
    buf_free(&got);
    fixture_stop(&f);
    fixture_end(&f);
}

/* Many items, in every form of reply, compared with what a loop says. */
static void many_items(void **state)
{
    (void)state;
    enum { N = 10000 };
    struct fixture f;
    init(&f);
    fixture_start(&f);
    fixture_attach(&f);
    struct buf request = {0}, want = {0}, got = {0};
    buf_addf(&request, "PLAYED big 3 4 5 999 1000 9999\r\n");
    for (int form = 0; form < 2; form++) {
        buf_addf(&request, "*%d\r\n$6\r\nFILTER\r\n$3\r\nbig\r\n$5\r\nREPLY\r\n%s\r\n$5\r\nITEMS\r\n", N + 5,
                 form == 0 ? "$5\r\nITEMS" : "$7\r\nINDEXES");
        for (int i = 0; i < N; i++) {
            char text[16];
            int len = snprintf(text, sizeof text, "%d", i);
            buf_addf(&request, "$%d\r\n%s\r\n", len, text);
        }
    }
    buf_addf(&want, ":6\r\n");
    for (int form = 0; form < 2; form++) {
        buf_addf(&want, "*%d\r\n", N - 6);
        for (int i = 0; i < N; i++) {
            char text[16];
            int len = snprintf(text, sizeof text, "%d", i);
            if (i != 3 && i != 4 && i != 5 && i != 999 && i != 1000 && i != 9999) {
                form == 0 ? buf_addf(&want, "$%d\r\n%s\r\n", len, text) : buf_addf(&want, ":%s\r\n", text);
            }
        }
    }
    int fd = client_open(&f);
    client_send(fd, request.data, request.len);
    shutdown(fd, SHUT_WR);
    client_read_all(fd, &got);
    close(fd);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
    buf_free(&request);
    buf_free(&want);
    buf_free(&got);
    fixture_stop(&f);
    fixture_end(&f);
}

/* Items of every length, alone and in runs: they are copied as they stand in the request. */
static void items_of_every_length(void **state)
{
    (void)state;
    struct fixture f;
    init(&f);
    fixture_start(&f);
    fixture_attach(&f);
    char item[ID_MAX];
    memset(item, 'x', sizeof item);
    struct buf request = {0}, want = {0}, got = {0};
    buf_addf(&request, "PLAYED u xxx xxxxxxxxxxxxxxxxxxxxx\r\n*%d\r\n$6\r\nUNSEEN\r\n$1\r\nu\r\n", 2 + 3 * ID_MAX);
    buf_addf(&want, ":2\r\n*%d\r\n", 2 * (ID_MAX - 2));
    for (int i = 0; i < 2 * ID_MAX; i++) {
        int len = i < ID_MAX ? i + 1 : 2 * ID_MAX - i; /* up, each behind a seen one, and down */
        buf_addf(&request, "%s$%d\r\n%.*s\r\n", i < ID_MAX ? "$3\r\nxxx\r\n" : "", len, len, item);
        if (len != 3 && len != 21) {
            buf_addf(&want, "$%d\r\n%.*s\r\n", len, len, item);
        }
    }
    int fd = client_open(&f);
    client_send(fd, request.data, request.len);
    shutdown(fd, SHUT_WR);
    client_read_all(fd, &got);
    close(fd);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
    buf_free(&request);
    buf_free(&want);
    buf_free(&got);
    fixture_stop(&f);
    fixture_end(&f);
}

/* One too many, in a command of its own size and in one of more arguments than are kept. */
static void too_many_items(void **state)
{
    (void)state;
    struct fixture f;
    init(&f);
    fixture_start(&f);
    fixture_attach(&f);
    for (int extra = 0; extra <= 100; extra += extra == 0 ? 1 : 99) {
        struct buf request = {0}, got = {0};
        int n = ITEMS_MAX + extra;
        buf_addf(&request, "*%d\r\n$6\r\nPLAYED\r\n$1\r\nu\r\n", n + 2);
        for (int i = 0; i < n; i++) {
            buf_add(&request, "$1\r\nx\r\n", 7);
        }
        buf_addf(&request, "SEEN u x\r\n");
        int fd = client_open(&f);
        client_send(fd, request.data, request.len);
        shutdown(fd, SHUT_WR);
        client_read_all(fd, &got);
        close(fd);
        const char *want = extra == 0   ? ":65536\r\n*1\r\n:1\r\n"
                           : extra == 1 ? "-ERR 65537 items are too many: a command takes at most 65536\r\n*1\r\n:1\r\n"
                                        : "-ERR 65638 arguments are too many: a command takes at most 65536 items\r\n"
                                          "*1\r\n:1\r\n";
        assert_true(text_is(want, &got, "many items"));
        buf_free(&request);
        buf_free(&got);
    }
    fixture_stop(&f);
    fixture_end(&f);
}

/* Behind a write the error waits for its turn, and is the same one. */
static void bad_times_are_counted_once(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_start(&f);
    fixture_attach(&f);
    int fd = client_open(&f);
    fake_store_hold(f.store);
    client_say(fd, "PLAYED u p1\r\nPLAYEDAT u 1795176000 p\r\n");
    fake_store_wait(f.store, 1);
    fake_store_release(f.store);
    client_expect(fd, ":1\r\n-ERR ");
    struct buf rest = {0};
    client_say(fd, "QUIT\r\n");
    client_read_all(fd, &rest);
    buf_free(&rest);
    close(fd);
    fd = client_open(&f);
    assert_int_equal(client_info(fd, "stats", "event_times_refused"), 1);
    close(fd);
    fixture_stop(&f);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_times_are_counted_once),
        cmocka_unit_test(replies_in_resp2),
        cmocka_unit_test(replies_in_resp3),
        cmocka_unit_test(binary_ids),
        cmocka_unit_test(many_items),
        cmocka_unit_test(too_many_items),
        cmocka_unit_test(items_of_every_length),
    };
    int failed = cmocka_run_group_tests_name("small users", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("large users", tests, enlarge, NULL);
}
