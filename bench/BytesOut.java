import com.sun.tools.attach.VirtualMachine;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** How many bytes of a topic brokers have sent to clients, by their own metrics: `BytesOut TOPIC PID...`. */
public final class BytesOut {
    public static void main(String[] arguments) throws Exception {
        long total = 0;
        for (int n = 1; n < arguments.length; n++) {
            VirtualMachine broker = VirtualMachine.attach(arguments[n]);
            JMXServiceURL url = new JMXServiceURL(broker.startLocalManagementAgent());
            broker.detach();
            try (var connection = JMXConnectorFactory.connect(url)) {
                MBeanServerConnection beans = connection.getMBeanServerConnection();
                String name = "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic=" + arguments[0];
                for (ObjectName one : beans.queryNames(new ObjectName(name), null)) {
                    total += (Long) beans.getAttribute(one, "Count");
                }
            }
        }
        System.out.println(total);
    }
}
