/* A consumer is made: its memory, its parts, and the client with its properties. */
#ifndef UNSEEN_KAFKA_START_H
#define UNSEEN_KAFKA_START_H

#include "kafka/client.h"
#include "kafka/kafka.h"

/* As kafka_start(), with this client. */
int kafka_start_with(const struct client_ops *ops, const struct dedup *dedup, struct kafka **kafka, struct err *err);

/* Without its thread. */
int kafka_new(const struct client_ops *ops, const struct dedup *dedup, const struct client_hooks *hooks,
              struct kafka **kafka, struct err *err);
/* ERR_INVALID: what librdkafka says of the properties; ERR_NOTFOUND, ERR_IO: of a file that one of them names. */
int kafka_open_client(struct kafka *k, struct err *err);

#endif
