import java.io.FileReader;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;

/** For each file of client properties, prints the id of the cluster that it leads to. */
public class Probe {
    public static void main(String[] args) throws Exception {
        for (String file : args) {
            Properties properties = new Properties();
            try (FileReader reader = new FileReader(file)) {
                properties.load(reader);
            }
            try (Admin admin = Admin.create(properties)) {
                System.out.println("cluster " + admin.describeCluster().clusterId().get());
            }
        }
    }
}
