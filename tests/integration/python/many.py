import os

import grpc
from unseen.v1 import unseen_pb2 as pb
from unseen.v1.unseen_pb2_grpc import UnseenStub

channel = grpc.insecure_channel(os.environ.get("UNSEEN", "127.0.0.1:7981"))
unseen = UnseenStub(channel)

unseen.PoolSet(pb.PoolRequest(pool="today", items=["a", "b", "c"]), timeout=5)  # once, for all users
unseen.Played(pb.RecordRequest(user="grpcio-many:u1", items=["a"]), timeout=5)

users = ["grpcio-many:u1", "grpcio-many:u2"]  # up to 1,000
request = pb.FilterManyRequest(users=users, pools=["today"], reply=pb.FilterRequest.ITEMS, limit=10)
best = {}
for answer in unseen.FilterMany(request, timeout=1):  # in any order
    user = users[answer.index]
    if answer.code:
        print(user, answer.message)  # the others have their answers
    else:
        best[user] = answer.reply.items[:1]  # your ranking
for user, items in best.items():
    unseen.Delivered(pb.RecordRequest(user=user, items=items), timeout=5)
print(*best["grpcio-many:u1"])
