/* The server's side of logins: accounts as they are in force, and the thread that checks passwords; account.h is the
 * edges'.
 *
 *   accounts_open()      before the first connection
 *   accounts_replace()   a reload; one thread
 *   accounts_stop()      before the workers stop: who still waits is told so
 *   accounts_free()      once the workers are gone
 */
#ifndef UNSEEN_SERVICE_LOGIN_H
#define UNSEEN_SERVICE_LOGIN_H

#include "service/account_file.h"

enum {
    LOGIN_FREE = 10,           /* wrong passwords of one account that cost an address nothing, */
    LOGIN_FREE_ADDRESS = 100,  /* and of any; see net/logins.h */
    LOGIN_CHECKS_MAX = 1024,   /* passwords that wait to be checked; equal ones of one address are one */
    LOGIN_CHECKS_ADDRESS = 32, /* of one address */
    LOGIN_WAITING_MAX = 16384, /* logins that wait for those checks */
};

/* Takes the set over; NULL: there is no file. */
int accounts_open(struct service *s, struct account_set *set, struct err *err);

/* The same from here on, unless it is equal to the one in force. False: it was. What it replaces is kept until
 * accounts_free(), since readers are not counted. */
bool accounts_replace(struct service *s, struct account_set *set);

void accounts_stop(struct service *s);
void accounts_free(struct service *s);

#endif
