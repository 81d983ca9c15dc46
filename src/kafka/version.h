/* What `unseen version` says of librdkafka, which is in a module. */
#ifndef UNSEEN_KAFKA_VERSION_H
#define UNSEEN_KAFKA_VERSION_H

/* Its version, or "not installed"; "not usable" of a module that can't be loaded. Loads the module of that folder;
 * NULL: where the program's own was installed. */
const char *kafka_library_version(const char *folder);

#endif
