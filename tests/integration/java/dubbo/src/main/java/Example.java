import java.util.List;
import org.apache.dubbo.common.constants.CommonConstants;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import unseen.v1.FilterRequest;
import unseen.v1.RecordRequest;
import unseen.v1.Unseen;

public class Example {
    public static void main(String[] args) {
        ReferenceConfig<Unseen> reference = new ReferenceConfig<>();
        reference.setInterface(Unseen.class);
        reference.setProxy(CommonConstants.NATIVE_STUB);
        reference.setUrl("tri://" + System.getenv().getOrDefault("UNSEEN", "127.0.0.1:7981"));
        reference.setTimeout(2000);
        DubboBootstrap dubbo = DubboBootstrap.getInstance().application("recommender").reference(reference).start();
        Unseen unseen = reference.get();
        String user = "dubbo:u1";

        unseen.played(RecordRequest.newBuilder().setUser(user).addItems("a").build());

        List<String> candidates = List.of("a", "b", "c"); // recalled
        List<Integer> left = unseen.filter(FilterRequest.newBuilder().setUser(user).addAllItems(candidates)
                .setReply(FilterRequest.Reply.INDEXES).build()).getIndexesList();
        String best = candidates.get(left.get(0)); // your ranking
        unseen.delivered(RecordRequest.newBuilder().setUser(user).addItems(best).build());
        System.out.println(best);
        dubbo.stop();
    }
}
