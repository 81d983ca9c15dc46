#include "base/calendar.h"
#include "config/config.h"

enum { HOUR_MS = 60 * 60 * 1000, DAY_MS = 24 * HOUR_MS };

int64_t config_backup_next_ms(const struct config *cfg, int64_t last_good_ms, int64_t now_ms)
{
    if (cfg->backup_at < 0) {
        return 0;
    }
    int64_t passed = calendar_passed_ms(now_ms, (int)cfg->backup_at);
    /* One of tomorrow was made by a clock that was wrong. */
    if (last_good_ms < passed || last_good_ms > now_ms + DAY_MS) {
        return passed;
    }
    return calendar_passed_ms(passed + 26 * (int64_t)HOUR_MS, (int)cfg->backup_at); /* also of a day of 25 hours */
}
