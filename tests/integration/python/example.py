import os

import grpc
from unseen.v1 import unseen_pb2 as pb
from unseen.v1.unseen_pb2_grpc import UnseenStub

channel = grpc.insecure_channel(os.environ.get("UNSEEN", "127.0.0.1:7981"))
unseen = UnseenStub(channel)

unseen.Played(pb.RecordRequest(user="grpcio:u1", items=["a"]), timeout=5)

candidates = ["a", "b", "c"]  # recalled
request = pb.FilterRequest(user="grpcio:u1", items=candidates, reply=pb.FilterRequest.INDEXES)
left = unseen.Filter(request, timeout=2).indexes
ranked = [candidates[i] for i in left]  # your ranking
sent = ranked[:1]
unseen.Delivered(pb.RecordRequest(user="grpcio:u1", items=sent), timeout=5)
print(*sent)
