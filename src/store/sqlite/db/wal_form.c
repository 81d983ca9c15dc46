#include "store/sqlite/db/wal_form.h"

#include <string.h>

uint32_t wal_read_be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t read_le32(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static void add(struct wal_sum *sum, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint32_t a = sum->big_endian ? wal_read_be32(bytes + i) : read_le32(bytes + i);
        uint32_t b = sum->big_endian ? wal_read_be32(bytes + i + 4) : read_le32(bytes + i + 4);
        sum->at[0] += a + sum->at[1];
        sum->at[1] += b + sum->at[0];
    }
}

static bool is(const struct wal_sum *sum, const uint8_t *at)
{
    return sum->at[0] == wal_read_be32(at) && sum->at[1] == wal_read_be32(at + 4);
}

bool wal_take_header(struct wal_sum *sum, const uint8_t header[WAL_HEADER], uint32_t page_size)
{
    uint32_t magic = wal_read_be32(header);
    *sum = (struct wal_sum){.big_endian = (magic & 1) != 0};
    add(sum, header, WAL_HEADER - 8);
    return (magic & ~1U) == 0x377f0682 && wal_read_be32(header + 8) == page_size && is(sum, header + WAL_HEADER - 8);
}

bool wal_take_frame(struct wal_sum *sum, const uint8_t *frame, uint32_t page_size, const uint8_t salts[8])
{
    add(sum, frame, 8);
    add(sum, frame + WAL_FRAME_HEADER, page_size);
    return memcmp(frame + WAL_FRAME_SALTS, salts, 8) == 0 && is(sum, frame + 16);
}

bool wal_frame_commits(const uint8_t *frame)
{
    return wal_read_be32(frame + 4) != 0;
}
