// rhea, an AMQP 1.0 client that knows nothing of Service Bus: two browsers one after the other, then a receiver that
// settles one message without an outcome, for which its source has a default. Prints what it saw.
import rhea from "rhea";

const [where, queue] = process.argv.slice(2);
const connection = rhea.create_container().connect({ ...JSON.parse(where), reconnect: false });
const problem = (context) => {
  console.error(String(context.receiver?.error ?? context.connection?.error ?? context.error));
  process.exit(1);
};
connection.on("connection_error", problem);
connection.on("disconnected", problem);

/** What one browser sees up to the end of the queue, which the answer to its drain tells. */
function browse() {
  return new Promise((resolve) => {
    const seen = [];
    const receiver = connection.open_receiver({
      source: { address: queue, distribution_mode: "copy" },
      credit_window: 0,
      snd_settle_mode: 1,
    });
    receiver.on("receiver_error", problem);
    receiver.on("receiver_open", () => {
      receiver.drain = true;
      receiver.add_credit(10);
    });
    receiver.on("message", (context) => seen.push(context.message.body.content.toString()));
    receiver.on("receiver_drained", () => {
      receiver.close();
      resolve({ seen, mode: receiver.source.distribution_mode });
    });
  });
}

/** Take one message and settle it without saying what became of it. */
function giveUp() {
  return new Promise((resolve) => {
    const receiver = connection.open_receiver({
      source: { address: queue, default_outcome: rhea.message.rejected().described() },
      credit_window: 0,
      autoaccept: false,
      autosettle: false,
      snd_settle_mode: 0,
    });
    receiver.on("receiver_error", problem);
    receiver.on("receiver_open", () => receiver.add_credit(1));
    receiver.on("message", (context) => {
      context.delivery.update(true);
      receiver.close();
    });
    receiver.on("receiver_close", resolve);
  });
}

const first = await browse();
const second = await browse();
await giveUp();
console.log(JSON.stringify({ seen: [first.seen, second.seen], mode: second.mode }));
connection.removeListener("disconnected", problem);
connection.close();
