import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import net.openhft.hashing.LongHashFunction;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.commands.ProtocolCommand;

public class HashExample {
    @SuppressWarnings("unchecked")
    public static void main(String[] args) {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "7979"));
        LongHashFunction xxh3 = LongHashFunction.xx3(0x0123456789abcdefL); // once, by hand, from SEED:
        byte[] fingerprint = bytes("07f90ff4");
        ProtocolCommand filter = () -> bytes("FILTER");

        List<String> candidates = List.of("a", "b", "c");
        ByteBuffer hashes = ByteBuffer.allocate(8 * candidates.size()).order(ByteOrder.LITTLE_ENDIAN);
        for (String item : candidates) {
            hashes.putLong(xxh3.hashBytes(bytes(item))); // keep it beside the item
        }
        try (JedisPooled asking = new JedisPooled("127.0.0.1", port)) {
            List<Long> unseen = (List<Long>) asking.sendCommand(filter, bytes("hash-java:u1"), bytes("REPLY"),
                    bytes("INDEXES"), bytes("SEED"), fingerprint, bytes("HASHES"), hashes.array());
            unseen.forEach(i -> System.out.println(candidates.get(i.intValue())));
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
