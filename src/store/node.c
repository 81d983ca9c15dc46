#include "store/node.h"

const char *node_role_name(enum node_role role)
{
    static const char *const names[NODE_ROLES] = {"primary", "replica", "fenced"};
    return names[role];
}
