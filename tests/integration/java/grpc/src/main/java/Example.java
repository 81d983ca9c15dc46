import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.util.List;
import java.util.concurrent.TimeUnit;
import unseen.v1.FilterRequest;
import unseen.v1.RecordRequest;
import unseen.v1.UnseenGrpc;
import unseen.v1.UnseenGrpc.UnseenBlockingStub;

public class Example {
    public static void main(String[] args) {
        String address = System.getenv().getOrDefault("UNSEEN", "127.0.0.1:7981");
        ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        UnseenBlockingStub unseen = UnseenGrpc.newBlockingStub(channel);
        String user = "grpc-java:u1";

        unseen.withDeadlineAfter(5, TimeUnit.SECONDS)
                .played(RecordRequest.newBuilder().setUser(user).addItems("a").build());

        List<String> candidates = List.of("a", "b", "c"); // recalled
        List<Integer> left = unseen.withDeadlineAfter(2, TimeUnit.SECONDS)
                .filter(FilterRequest.newBuilder().setUser(user).addAllItems(candidates)
                        .setReply(FilterRequest.Reply.INDEXES).build())
                .getIndexesList();
        String best = candidates.get(left.get(0)); // your ranking
        unseen.withDeadlineAfter(5, TimeUnit.SECONDS)
                .delivered(RecordRequest.newBuilder().setUser(user).addItems(best).build());
        System.out.println(best);
        channel.shutdown();
    }
}
