import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.IntStream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.commands.ProtocolCommand;

public class JedisExample {
    enum Unseen implements ProtocolCommand {
        PLAYED, FILTER, DELIVERED;

        @Override
        public byte[] getRaw() {
            return name().getBytes(StandardCharsets.UTF_8);
        }
    }

    static JedisPooled pool(int timeoutMillis) {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "7979"));
        return new JedisPooled(new HostAndPort("127.0.0.1", port),
                DefaultJedisClientConfig.builder().socketTimeoutMillis(timeoutMillis).build());
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] args) {
        try (JedisPooled writing = pool(5000); JedisPooled asking = pool(2000)) {
            writing.sendCommand(Unseen.PLAYED, "jedis:u1", "a");

            List<String> candidates = List.of("a", "b", "c"); // recalled
            List<Long> unseen = (List<Long>) asking.sendCommand(Unseen.FILTER,
                    "jedis:u1", "REPLY", "INDEXES", "ITEMS", "a", "b", "c");

            byte[] bitmap = (byte[]) asking.sendCommand(Unseen.FILTER,
                    "jedis:u1", "REPLY", "BITMAP", "ITEMS", "a", "b", "c");
            List<Long> same = IntStream.range(0, candidates.size())
                    .filter(i -> (bitmap[i / 8] >> (7 - i % 8) & 1) == 1).mapToObj(i -> (long) i).toList();
            if (!same.equals(unseen)) {
                throw new AssertionError(same + " is not " + unseen);
            }

            String best = candidates.get(unseen.get(0).intValue()); // your ranking
            writing.sendCommand(Unseen.DELIVERED, "jedis:u1", best);
            System.out.println(best);
        }
    }
}
