/* The chance of rank k, 1 / k^skew, is taken for the area under the curve h(x) = 1 / x^skew between k - 1/2 and k +
 * 1/2: since the curve sags, that area is never too small. So a point is drawn evenly under the curve (its area up to x
 * is area(), which can be inverted), x is rounded to the rank, and the few points that are too many are drawn again.
 * Rank 1 gets exactly its share by where the drawing begins. */
#include "cli/bench/zipf.h"

#include <math.h>

/* (e^t - 1) / t and log(1 + t) / t, also where t is nearly 0: there a skew of nearly 1 would divide by nearly nothing.
 */
static double exp_less_one(double t)
{
    return fabs(t) > 1e-8 ? expm1(t) / t : 1 + t / 2;
}

static double log_of_more(double t)
{
    return fabs(t) > 1e-8 ? log1p(t) / t : 1 - t / 2;
}

static double height(double skew, double x)
{
    return exp(-skew * log(x));
}

/* The integral of height() from 1 to x: (x^(1 - skew) - 1) / (1 - skew), or log x. */
static double area(double skew, double x)
{
    double log_x = log(x);
    return exp_less_one((1 - skew) * log_x) * log_x;
}

static double area_inverse(double skew, double a)
{
    double t = a * (1 - skew);
    return exp(log_of_more(t < -1 ? -1 : t) * a);
}

void zipf_init(struct zipf *z, uint64_t n, double skew)
{
    z->n = n;
    z->skew = skew;
    z->area_first = area(skew, 1.5) - 1;
    z->area_end = area(skew, (double)n + 0.5);
    z->sure = 2 - area_inverse(skew, area(skew, 2.5) - height(skew, 2));
}

uint64_t zipf_next(const struct zipf *z, struct random *random)
{
    for (;;) {
        double a = z->area_end + random_unit(random) * (z->area_first - z->area_end);
        double x = area_inverse(z->skew, a);
        double rank = floor(x + 0.5);
        rank = rank < 1 ? 1 : rank > (double)z->n ? (double)z->n : rank;
        if (rank - x <= z->sure || a >= area(z->skew, rank + 0.5) - height(z->skew, rank)) {
            return (uint64_t)rank;
        }
    }
}
