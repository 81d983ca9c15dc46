#ifndef UNSEEN_NET_VERSION_H
#define UNSEEN_NET_VERSION_H

/* Of the libuv that runs, such as "1.44.2". */
const char *net_library_version(void);

#endif
