// Connection strings as `twinbus serve` prints them, tried with the official JavaScript clients as they stand. Run by
// test_cli_serve.py, which gives the strings; NODE_EXTRA_CA_CERTS makes the clients trust the broker's certificate.
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";

const found = {};
const { messages, administration } = JSON.parse(process.argv[2]);
for (const text of messages) {
  const client = new ServiceBusClient(text, { retryOptions: { maxRetries: 0 } });
  await client.createSender("orders").sendMessages({ body: "hello" });
  const [message] = await client.createReceiver("orders", { receiveMode: "receiveAndDelete" }).receiveMessages(1);
  found[text] = message.body;
  await client.close();
}
for (const text of administration) {
  found[text] = (await new ServiceBusAdministrationClient(text).getQueue("orders")).name;
}
console.log(JSON.stringify(found));
