import os
import struct

import redis
import xxhash

seed, fingerprint = 0x0123456789abcdef, "07f90ff4"  # once, by hand, from SEED
catalogue = ["a", "b", "c"]
item_hash = {item: struct.pack("<Q", xxhash.xxh3_64_intdigest(item.encode(), seed)) for item in catalogue}  # once an item

asking = redis.Redis(port=int(os.environ.get("PORT", 7979)), socket_timeout=2)
candidates = ["a", "b", "c"]  # recalled
hashes = b"".join(item_hash[item] for item in candidates)
unseen = asking.execute_command("FILTER", "hash-python:u1", "REPLY", "INDEXES", "SEED", fingerprint, "HASHES", hashes)
print(*(candidates[i] for i in unseen), sep="\n")
