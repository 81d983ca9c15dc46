#include <stdio.h>

int main(void)
{
    puts("unseen " UNSEEN_VERSION);
    return 0;
}
