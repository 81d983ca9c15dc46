#include "base/calendar.h"
#include "config/config.h"

enum { MINUTE_MS = 60 * 1000, HOUR_MS = 60 * MINUTE_MS, DAY_MS = 24 * HOUR_MS };

int64_t config_backup_passed_ms(int64_t now_ms, int64_t at_minute)
{
    int64_t since = calendar_local_minutes(now_ms) - at_minute;
    since += since < 0 ? DAY_MS / MINUTE_MS : 0;
    return now_ms - now_ms % MINUTE_MS - since * MINUTE_MS;
}

int64_t config_backup_next_ms(const struct config *cfg, int64_t last_good_ms, int64_t now_ms)
{
    if (cfg->backup_at < 0) {
        return 0;
    }
    int64_t passed = config_backup_passed_ms(now_ms, cfg->backup_at);
    /* One of tomorrow was made by a clock that was wrong. */
    if (last_good_ms < passed || last_good_ms > now_ms + DAY_MS) {
        return passed;
    }
    return config_backup_passed_ms(passed + 26 * (int64_t)HOUR_MS, cfg->backup_at); /* also of a day of 25 hours */
}
