/* The file of accounts: any bytes. A set that is made has accounts in the order of their names, each once, each with
 * roles that can be written and read again; an error names the file and its line. */
#include <string.h>

#include "fuzz.h"
#include "service/account_file.h"

static void check_account(const struct account_set *set, size_t i)
{
    const struct account *account = &set->accounts[i];
    char roles[ACCOUNT_ROLES_TEXT];
    unsigned again = 0;
    CHECK(account_check_name(slice_str(account->name), NULL) == 0);
    CHECK(account_set_find(set, slice_str(account->name)) == account);
    CHECK(i == 0 || strcmp(set->accounts[i - 1].name, account->name) < 0);
    CHECK(account->hash != NULL && strpbrk(account->hash, " \t\r\n") == NULL);
    account_roles_write(account->roles, roles);
    CHECK(account->roles != 0 && account_roles_read(slice_str(roles), &again, NULL) == 0 && again == account->roles);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct account_set *set = NULL;
    struct err err = {0};
    char *copy = malloc(size + 1); /* exactly, with the NUL that it is promised */
    CHECK(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    copy[size] = '\0';
    int code = account_file_parse("FILE", slice_of(copy, size), &set, &err);
    free(copy);
    CHECK(code == 0 || (code == ERR_INVALID && set == NULL && strncmp(err.text, "FILE:", 5) == 0));
    for (size_t i = 0; code == 0 && i < set->n; i++) {
        check_account(set, i);
    }
    CHECK(code < 0 || account_set_equal(set, set));
    account_set_free(set);
    return 0;
}
