/* What kafka_look() gives is made ready by the thread, some times a second. */
#ifndef UNSEEN_KAFKA_SHOW_H
#define UNSEEN_KAFKA_SHOW_H

struct kafka;

void kafka_show(struct kafka *k);

#endif
