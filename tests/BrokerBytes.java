import com.sun.tools.attach.VirtualMachine;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints how many bytes the broker with this process id has sent to clients of this topic, by its own metrics. */
public class BrokerBytes {
    public static void main(String[] args) throws Exception {
        VirtualMachine broker = VirtualMachine.attach(args[0]);
        String address = broker.startLocalManagementAgent();
        broker.detach();
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            String name = "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic=" + args[1];
            ObjectName bean = new ObjectName(name);
            System.out.println(beans.isRegistered(bean) ? beans.getAttribute(bean, "Count") : 0);
        }
    }
}
