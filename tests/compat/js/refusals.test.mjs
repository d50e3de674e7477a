import assert from "node:assert/strict";
import { describe } from "node:test";
import { connectionString, ids, numbered, receive, test } from "./bus.mjs";

const tracked = (error) => assert.match(error.message, /TrackingId:[0-9a-f]{32}/);

describe("refusals", { concurrency: true }, () => {
  test("an unknown queue is MessagingEntityNotFound for sender, receiver and peek", async (bus) => {
    const client = bus.client();
    const expected = { code: "MessagingEntityNotFound", retryable: false };
    await assert.rejects(client.createSender("ghost").sendMessages({ body: 1 }), expected);
    await assert.rejects(client.createReceiver("ghost").receiveMessages(1), expected);
    await assert.rejects(client.createReceiver("ghost").peekMessages(1), expected);
    await assert.rejects(client.acceptSession("ghost", "s"), expected);
  });

  test("a wrong key is UnauthorizedAccess", async (bus) => {
    const name = await bus.queue();
    const wrong = connectionString.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=not-the-key-that-opens-it");
    await assert.rejects(bus.client(wrong).createSender(name).sendMessages({ body: 1 }), { code: "UnauthorizedAccess" });
  });

  test("an unknown policy is UnauthorizedAccess", async (bus) => {
    const name = await bus.queue();
    const wrong = connectionString.replace("RootManageSharedAccessKey", "NobodyKnowsThisPolicy");
    await assert.rejects(bus.client(wrong).createReceiver(name).receiveMessages(1), { code: "UnauthorizedAccess" });
  });

  test("a message that is too large is MessageSizeExceeded, and the sender goes on working", async (bus) => {
    const { sender, receiver } = await bus.stocked([]);
    const large = { messageId: "large", body: Buffer.alloc(300_000) };
    await assert.rejects(sender.sendMessages(large), (error) => {
      assert.equal(error.code, "MessageSizeExceeded");
      assert.equal(error.retryable, false);
      tracked(error);
      return true;
    });
    await sender.sendMessages({ messageId: "small", body: 1 });
    assert.deepEqual(ids(await receive(receiver, 1)), ["small"]);
  });

  test("a message without session id is refused by a queue with sessions, and the sender goes on", async (bus) => {
    const { name, client, sender } = await bus.stocked([], { RequiresSession: true });
    await assert.rejects(sender.sendMessages({ body: 1 }), (error) => {
      assert.equal(error.name, "ServiceBusError");
      assert.equal(error.retryable, false);
      tracked(error);
      return true;
    });
    await sender.sendMessages({ messageId: "m", body: 1, sessionId: "s" });
    const receiver = await client.acceptSession(name, "s");
    assert.deepEqual(ids(await receive(receiver, 1)), ["m"]);
  });

  test("a receiver without session is refused by a queue with sessions, and the other way round", async (bus) => {
    const [withSessions, without] = await Promise.all([bus.queue({ RequiresSession: true }), bus.queue()]);
    const client = bus.client();
    await assert.rejects(client.createReceiver(withSessions).receiveMessages(1), { retryable: false });
    await assert.rejects(client.acceptSession(without, "s"), { name: "ServiceBusError" });
  });

  test("a disabled queue is MessagingEntityDisabled for whom it is closed", async (bus) => {
    const { name, sender, receiver } = await bus.stocked(numbered(1));
    await bus.update(name, { Status: "SendDisabled" });
    await assert.rejects(sender.sendMessages({ body: 1 }), { code: "MessagingEntityDisabled" });
    assert.deepEqual(ids(await receive(receiver, 1)), ["m0"]);
    await bus.update(name, { Status: "ReceiveDisabled" });
    await sender.sendMessages({ body: 1 });
    const late = bus.client().createReceiver(name);
    await assert.rejects(late.receiveMessages(1), { code: "MessagingEntityDisabled" });
  });

  test("a session that is held is SessionCannotBeLocked", async (bus) => {
    const { name, client } = await bus.stocked([], { RequiresSession: true });
    await client.acceptSession(name, "s");
    await assert.rejects(client.acceptSession(name, "s"), { code: "SessionCannotBeLocked", retryable: false });
  });

  test("an unknown deferred number is MessageNotFound", async (bus) => {
    const { receiver } = await bus.stocked(numbered(1));
    const [message] = await receive(receiver, 1);
    await assert.rejects(receiver.receiveDeferredMessages(message.sequenceNumber), { code: "MessageNotFound" });
  });
});
