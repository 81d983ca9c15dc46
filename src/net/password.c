#include "net/password.h"

#include "config/config.h"

bool password_right(const char *want, struct slice given)
{
    unsigned char difference = given.len >= CONFIG_TEXT || given.len != strlen(want);
    for (size_t i = 0; i < CONFIG_TEXT; i++) {
        unsigned char g = i < given.len ? (unsigned char)given.data[i] : 0;
        unsigned char w = i < strnlen(want, CONFIG_TEXT) ? (unsigned char)want[i] : 0;
        difference |= (unsigned char)(g ^ w);
    }
    return difference == 0;
}
