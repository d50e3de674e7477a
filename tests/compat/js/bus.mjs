// What each JavaScript test needs: a client of its own, a queue of its own, and both gone afterwards.
// The broker is already running; test_javascript.py says where, in the environment.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test as nodeTest } from "node:test";
import { ServiceBusClient } from "@azure/service-bus";

export const connectionString = process.env.TWINBUS_CONNECTION_STRING;
const http = process.env.TWINBUS_HTTP;
const token = process.env.TWINBUS_HTTP_TOKEN;
const TIMEOUT_MS = 40_000;
// No retries: a test that fails should fail at once, and one about errors wants the first of them.
const ONCE = { retryOptions: { maxRetries: 0 } };

class Bus {
  clients = [];

  /** A client with its own connection; closed when the test ends. */
  client(text = connectionString, options = ONCE) {
    const client = new ServiceBusClient(text, options);
    this.clients.push(client);
    return client;
  }

  /** A new queue; settings under their Service Bus names, in the order of the service's schema. */
  async queue(settings = {}) {
    const name = `js-${randomUUID()}`;
    await this.describe(name, settings);
    return name;
  }

  /** Change a queue's settings, which drops the locks in it. */
  async update(name, settings = {}) {
    await this.describe(name, settings, { "If-Match": "*" });
  }

  async describe(name, settings, headers = {}) {
    const elements = Object.entries(settings).map(([key, value]) => `<${key}>${value}</${key}>`);
    const description = `<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">${elements.join("")}</QueueDescription>`;
    const answer = await fetch(`${http}/${name}?api-version=2021-05`, {
      method: "PUT",
      headers: { Authorization: token, "Content-Type": "application/atom+xml", ...headers },
      body: `<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">${description}</content></entry>`,
    });
    assert.ok(answer.ok, `${answer.status}: ${await answer.text()}`);
  }

  /** A queue with these messages in it, a sender and a PeekLock receiver of the same client. */
  async stocked(messages, settings = {}) {
    const name = await this.queue(settings);
    const client = this.client();
    const sender = client.createSender(name);
    if (messages.length > 0) await sender.sendMessages(messages);
    return { name, client, sender, receiver: client.createReceiver(name) };
  }

  async close() {
    await Promise.all(this.clients.map((client) => client.close()));
  }
}

/** One test with its own Bus. */
export function test(name, body) {
  nodeTest(name, { timeout: TIMEOUT_MS }, async () => {
    const bus = new Bus();
    try {
      await body(bus);
    } finally {
      await bus.close();
    }
  });
}

/** Messages with ids m0, m1, … and bodies 0, 1, … */
export const numbered = (count, extra = {}) =>
  Array.from({ length: count }, (_, n) => ({ messageId: `m${n}`, body: n, ...extra }));

/** Exactly so many messages, or a failed test. */
export async function receive(receiver, count, maxWaitTimeInMs = 10_000) {
  const messages = [];
  const deadline = Date.now() + maxWaitTimeInMs;
  while (messages.length < count && Date.now() < deadline) {
    const wait = { maxWaitTimeInMs: Math.max(1, deadline - Date.now()) };
    messages.push(...(await receiver.receiveMessages(count - messages.length, wait)));
  }
  assert.equal(messages.length, count, "messages received in time");
  return messages;
}

/** Nothing is available now: a short receive comes back empty. */
export async function assertEmpty(receiver) {
  assert.deepEqual(ids(await receiver.receiveMessages(1, { maxWaitTimeInMs: 300 })), []);
}

/**
 * Everything from this message on was settled, and the client knows: the answer to a peek comes behind those to earlier settlements. A client
 * that is closed with a settlement under way keeps its process alive for the minute that it would have waited.
 */
export async function emptied(receiver, first) {
  const deadline = Date.now() + 10_000;
  while ((await receiver.peekMessages(1, { fromSequenceNumber: first.sequenceNumber })).length > 0) {
    assert.ok(Date.now() < deadline, "the queue is not empty in time");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export const ids = (messages) => messages.map((message) => message.messageId);

export const sleepUntil = (instant) => new Promise((resolve) => setTimeout(resolve, instant - Date.now()));
