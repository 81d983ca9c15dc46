/* Lists of deliveries, as tests write them down: newest first, and not yet united. */
#ifndef UNSEEN_TESTS_LIB_SENT_LIST_H
#define UNSEEN_TESTS_LIB_SENT_LIST_H

#include "store/user/deliveries.h"

#define SENT(ms, hash_of_it, item_of_it)                                                                               \
    {                                                                                                                  \
        .stamp = delivered_stamp(ms, 0), .hash = (hash_of_it), .item = (item_of_it)                                    \
    }

/* As delivered_pack(), of the list united. */
static inline int sent_list_pack(struct delivered_codec *codec, struct store_delivery *list, size_t n, struct buf *out)
{
    struct delivered d = {.list = list, .n = n};
    delivered_unite(&d, DELIVERED_MAX);
    return delivered_pack(codec, &d, out);
}

#endif
