"""grpcio, with the stubs that protoc's plugin makes."""
import sys
import threading

import grpc
from unseen.v1 import unseen_pb2 as pb
from unseen.v1 import unseen_pb2_grpc

address = sys.argv[1]
channel = grpc.insecure_channel(address)
unseen = unseen_pb2_grpc.UnseenStub(channel)
failed = []


def check(name, function):
    try:
        function()
        print(f"ok {name}")
    except Exception as error:
        print(f"not ok {name}: {type(error).__name__} {error}".replace("\n", " "))


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r}, and not {wanted!r}")


def refused(code, text, call):
    try:
        call()
    except grpc.RpcError as error:
        expect(error.code(), code)
        if text not in error.details():
            raise AssertionError(f"{error.details()!r} has no {text!r}")
        return
    raise AssertionError(f"answered, and not refused with {code}")


def unary(path):
    """A method without a stub: bytes in, bytes out."""
    return channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)


def ask_and_record():
    expect(unseen.Played(pb.RecordRequest(user="py:1", items=["a", "c"], tag=7)), pb.RecordReply(count=2, tag=7))
    request = pb.FilterRequest(user="py:1", items=["a", "b", "c", "d"])
    expect(unseen.Filter(request, timeout=5).bitmap, b"\x50")
    request.reply = pb.FilterRequest.INDEXES
    expect(list(unseen.Filter(request).indexes), [1, 3])
    request.reply = pb.FilterRequest.ITEMS
    expect(list(unseen.Filter(request).items), ["b", "d"])
    request.limit = 1
    request.deliver = True
    expect(list(unseen.Filter(request).items), ["b"])
    expect(list(unseen.Filter(request).items), ["d"])


def binary_ids():
    user, items = b"\xff\x00py", [b"\x00", b"\xfe\x00"]
    expect(unseen.Played(pb.RecordRequest(binary_user=user, binary_items=items[:1])).count, 1)
    reply = unseen.Filter(pb.FilterRequest(binary_user=user, binary_items=items, reply=pb.FilterRequest.ITEMS))
    expect((list(reply.items), list(reply.binary_items)), ([], items[1:]))


def many_candidates():
    items = [f"video:{i:019d}" for i in range(10000)]
    expect(unseen.Played(pb.RecordRequest(user="py:many", items=items[::2])).count, 5000)
    reply = unseen.Filter(pb.FilterRequest(user="py:many", items=items, reply=pb.FilterRequest.INDEXES))
    found = set(reply.indexes)
    expect([i for i in range(0, 10000, 2) if i in found], [])
    if len(found) < 4900:
        raise AssertionError(f"{len(found)} of 5,000 are unseen")


def gzip():
    items = [f"video:{i:019d}" for i in range(1000)]
    reply = unseen.Filter(pb.FilterRequest(user="py:gzip", items=items), compression=grpc.Compression.Gzip)
    expect(reply.bitmap, b"\xff" * 125)


def deflate_is_not_known():
    refused(grpc.StatusCode.UNIMPLEMENTED, "", lambda: unseen.Filter(
        pb.FilterRequest(user="py:deflate", items=["a"] * 1000), compression=grpc.Compression.Deflate))


def stream():
    plays = (pb.RecordRequest(user=f"py:s{i % 10}", items=[f"{i}"], tag=i + 1) for i in range(2000))
    expect([(r.tag, r.count, r.code) for r in unseen.PlayedStream(plays)], [(i + 1, 1, 0) for i in range(2000)])


def refused_in_a_stream():
    plays = [pb.RecordRequest(user="py:r", items=["a"], tag=1), pb.RecordRequest(items=["a"], tag=2),
             pb.RecordRequest(user="py:r", items=["b"], tag=3)]
    replies = list(unseen.PlayedStream(iter(plays)))
    expect([(r.tag, r.count, r.code) for r in replies], [(1, 1, 0), (2, 0, 3), (3, 1, 0)])
    if not replies[1].message:
        raise AssertionError("no message")


def other_operations():
    unseen.Delivered(pb.RecordRequest(user="py:o", items=["sent"]))
    unseen.Played(pb.RecordRequest(user="py:o", items=["played"]))
    why = unseen.Why(pb.WhyRequest(user="py:o", item="sent"))
    expect((why.seen, [p.place for p in why.places]), (True, ["delivered"]))
    expect(unseen.Why(pb.WhyRequest(user="py:o", item="other")), pb.WhyReply())
    history = unseen.History(pb.HistoryRequest(user="py:o"))
    expect((history.staged, history.delivered), (1, 1))
    expect(unseen.Forget(pb.ForgetRequest(user="py:o", items=["played"])).count, 1)
    expect(unseen.Forget(pb.ForgetRequest(user="py:o", all=True)).count, 1)
    expect(unseen.Why(pb.WhyRequest(user="py:o", item="sent")).seen, False)


def sessions():
    expect(unseen.Block(pb.BlockRequest(session="py", ids=["a", "b"])).count, 2)
    request = pb.FilterRequest(user="py:b", items=["a", "c"], session="py", reply=pb.FilterRequest.ITEMS)
    expect(list(unseen.Filter(request).items), ["c"])
    expect(unseen.Unblock(pb.UnblockRequest(session="py", ids=["a"])).count, 1)
    expect(list(unseen.Filter(request).items), ["a", "c"])
    expect(unseen.Unblock(pb.UnblockRequest(session="py", all=True)).count, 1)


def errors_by_status():
    code = grpc.StatusCode
    refused(code.INVALID_ARGUMENT, "user", lambda: unseen.Filter(pb.FilterRequest(items=["a"])))
    refused(code.INVALID_ARGUMENT, "", lambda: unseen.Filter(pb.FilterRequest(user="py:e")))
    refused(code.INVALID_ARGUMENT, "", lambda: unseen.Filter(
        pb.FilterRequest(user="py:e", items=[str(i) for i in range(65537)])))
    refused(code.INVALID_ARGUMENT, "", lambda: unseen.Filter(
        pb.FilterRequest(user="py:e", items=["a"], binary_items=[b"b"])))
    refused(code.OUT_OF_RANGE, "", lambda: unseen.Played(
        pb.RecordRequest(user="py:e", items=["a"], at=4102444800001)))
    refused(code.NOT_FOUND, "", lambda: unseen.History(pb.HistoryRequest(user="py:nobody")))
    refused(code.UNIMPLEMENTED, "", lambda: unary("/unseen.v1.Unseen/Nonsense")(b""))
    refused(code.UNIMPLEMENTED, "", lambda: unary("/other.v1.Service/Filter")(b""))


def malformed_messages():
    filter_bytes = unary("/unseen.v1.Unseen/Filter")
    for text in (b"\x0a\x05ab",          # a length beyond the message
                 b"\x08\x01",            # a user that is a number
                 b"\x0a\x02\xff\xfe",    # text that is not UTF-8
                 b"\x0a"):               # a field without a value
        refused(grpc.StatusCode.INVALID_ARGUMENT, "", lambda: filter_bytes(text))
    # A field that this server does not know is passed over.
    expect(filter_bytes(pb.FilterRequest(user="py:m", items=["a"]).SerializeToString() + b"\xf8\x06\x01")[:1], b"\x0a")


def too_large():
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "", lambda: unary("/unseen.v1.Unseen/Filter")(bytes(17 << 20)))
    expect(unseen.Filter(pb.FilterRequest(user="py:after", items=["a"])).bitmap, b"\x80")


def deadline():
    """A stream that its client holds open has no end but this one."""
    def plays():
        yield pb.RecordRequest(user="py:d", items=["a"], tag=1)
        over.wait()

    over = threading.Event()
    replies = unseen.PlayedStream(plays(), timeout=0.5)
    expect(next(replies).tag, 1)
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, "", lambda: next(replies))
    over.set()
    expect(unseen.Filter(pb.FilterRequest(user="py:d", items=["a"]), timeout=60).bitmap, b"\x00")


def cancelled():
    over = threading.Event()  # not the call itself: its thread may ask for plays before it is returned

    def plays():
        yield pb.RecordRequest(user="py:x", items=["a"], tag=1)
        while not over.is_set():
            yield pb.RecordRequest(user="py:x", items=["b"], tag=2)

    call = unseen.PlayedStream(plays())
    expect(next(call).tag, 1)
    call.cancel()
    over.set()
    expect(unseen.Filter(pb.FilterRequest(user="py:x", items=["a"])).bitmap, b"\x00")


def many_calls_at_once():
    calls = [unseen.Filter.future(pb.FilterRequest(user=f"py:c{i}", items=["a", "b"])) for i in range(500)]
    expect({call.result().bitmap for call in calls}, {b"\xc0"})


check("asks and records", ask_and_record)
check("binary ids", binary_ids)
check("10,000 candidates", many_candidates)
check("gzip", gzip)
check("deflate is not known", deflate_is_not_known)
check("2,000 plays in a stream", stream)
check("a play refused in a stream", refused_in_a_stream)
check("the other operations", other_operations)
check("sessions", sessions)
check("errors by status", errors_by_status)
check("malformed messages", malformed_messages)
check("a message too large", too_large)
check("a deadline", deadline)
check("a stream cancelled", cancelled)
check("500 calls at once", many_calls_at_once)
