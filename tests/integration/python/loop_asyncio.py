import asyncio
import os

import redis.asyncio as redis


async def main():
    port = int(os.environ.get("PORT", 7979))
    writing = redis.Redis(port=port, socket_timeout=5)
    asking = redis.Redis(port=port, socket_timeout=2)
    async with writing, asking:
        await writing.execute_command("PLAYED", "asyncio:u1", "a")

        candidates = ["a", "b", "c"]  # recalled
        unseen = await asking.execute_command("FILTER", "asyncio:u1", "REPLY", "INDEXES", "ITEMS", *candidates)

        bitmap = await asking.execute_command("FILTER", "asyncio:u1", "REPLY", "BITMAP", "ITEMS", *candidates)
        assert unseen == [i for i in range(len(candidates)) if bitmap[i // 8] >> (7 - i % 8) & 1]

        ranked = [candidates[i] for i in unseen]  # your ranking
        sent = ranked[:1]
        await writing.execute_command("DELIVERED", "asyncio:u1", *sent)
        print(*sent)


asyncio.run(main())
