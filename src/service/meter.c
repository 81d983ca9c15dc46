#include "service/meter.h"

#include <string.h>

const char *const op_names[OPS] = {
    [OP_OTHER] = "other",
    [OP_PLAYED] = "played",
    [OP_PLAYEDAT] = "playedat",
    [OP_DELIVERED] = "delivered",
    [OP_UNSEEN] = "unseen",
    [OP_SEEN] = "seen",
    [OP_FILTER] = "filter",
    [OP_FILTER_DELIVER] = "filter_deliver",
    [OP_FILTER_MANY] = "filter_many",
    [OP_BLOCK] = "block",
    [OP_UNBLOCK] = "unblock",
    [OP_FORGET] = "forget",
    [OP_MERGE] = "merge",
    [OP_WHY] = "why",
    [OP_HISTORY] = "history",
    [OP_EXPOSURE] = "exposure",
    [OP_RING] = "ring",
    [OP_MONTHS] = "months",
    [OP_INFO] = "info",
};

const char *const meter_error_names[METER_ERRORS] = {
    "ERR",       "BUSY",   "MISCONF", "OOM",       "LOADING",  "NOAUTH",
    "WRONGPASS", "NOPERM", "NOPROTO", "EXECABORT", "READONLY", "other",
};

const struct figure meter_figures[METER_COUNTS] = {
    [COUNT_QUESTIONS] = {"questions", "questions_total", FIGURE_COUNTER, "Questions that were answered."},
    [COUNT_CANDIDATES] = {"candidates", "candidates_total", FIGURE_COUNTER, "Candidates that questions asked about."},
    [COUNT_UNSEEN] = {"candidates_unseen", "candidates_unseen_total", FIGURE_COUNTER,
                      "Candidates that the answer was unseen for."},
    [COUNT_LARGE] = {"large_questions", "large_questions_total", FIGURE_COUNTER,
                     "Questions about large users, which a thread of its own answers."},
    [COUNT_COLD] =
        {"cold_questions", "cold_questions_total", FIGURE_COUNTER,
         "Questions whose answer was not in memory, so that threads beside the workers waited for the disk."},
    [COUNT_HEDGE_ASKED] = {"hedge_asked", "hedge_asked_total", FIGURE_COUNTER,
                           "Questions that were put to the second tier, since the disk was late or failed."},
    [COUNT_HEDGE_WON] = {"hedge_won", "hedge_won_total", FIGURE_COUNTER, "Of these, those that it answered."},
    [COUNT_HEDGE_WASTED] = {"hedge_wasted", "hedge_wasted_total", FIGURE_COUNTER,
                            "Of these, those that the disk answered first."},
    [COUNT_HEDGE_NOT_WHOLE] = {"hedge_not_whole", "hedge_not_whole_total", FIGURE_COUNTER,
                               "Of these, those that it had not all of the user for."},
    [COUNT_HEDGE_FAILED] = {"hedge_failed", "hedge_failed_total", FIGURE_COUNTER,
                            "Of these, those that it failed to answer."},
    [COUNT_HEDGE_REFUSED] = {"hedge_over_budget", "hedge_over_budget_total", FIGURE_COUNTER,
                             "Questions that were not put to it, because one in twenty were already."},
    [COUNT_FALSE_HITS] = {"expected_false_hits_millionths", "expected_false_hits_total", FIGURE_MILLIONTH,
                          "How many candidates the filters are expected to have hidden wrongly, at most: candidates "
                          "times the error of the asked user's window. Over unseen_candidates_total it is what was "
                          "spent of unseen_error_rate_limit_ratio."},
    [COUNT_OVER_ERROR_RATE] = {"questions_over_error_rate", "questions_over_error_rate_total", FIGURE_COUNTER,
                               "Questions about users whose window's error is above error_rate."},
    [COUNT_PLAYS] = {"plays_received", "plays_received_total", FIGURE_COUNTER, "Plays that were taken in."},
    [COUNT_DELIVERIES] = {"deliveries_received", "deliveries_received_total", FIGURE_COUNTER,
                          "Deliveries that were taken in."},
    [COUNT_SKEWED] = {"event_times_replaced", "event_times_replaced_total", FIGURE_COUNTER,
                      "Event times that were replaced by the server's (skewed_time = now)."},
    [COUNT_TIMES_REFUSED] = {"event_times_refused", "event_times_refused_total", FIGURE_COUNTER,
                             "Event times that were refused: past retention, too far ahead, or in seconds."},
};

enum op op_find(const char *name)
{
    for (int i = OP_OTHER + 1; i < OPS; i++) {
        if (strcmp(op_names[i], name) == 0) {
            return (enum op)i;
        }
    }
    return OP_OTHER;
}

void meter_error(struct meter *m, struct slice text)
{
    int i = 0;
    for (; i < METER_ERRORS - 1; i++) {
        size_t len = strlen(meter_error_names[i]);
        if (text.len > len && memcmp(text.data, meter_error_names[i], len) == 0 && text.data[len] == ' ') {
            break;
        }
    }
    meter_add(&m->errors[i], 1);
}
