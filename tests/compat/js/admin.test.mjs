// The official JavaScript administration client, unmodified, over HTTPS. Run by test_admin_javascript.py, which says
// where the broker is; NODE_EXTRA_CA_CERTS makes the client trust its certificate.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { ServiceBusAdministrationClient } from "@azure/service-bus";

const connectionString = process.env.TWINBUS_CONNECTION_STRING;
const admin = new ServiceBusAdministrationClient(connectionString);
const UNLIMITED = "P10675199DT2H48M5.4775807S";

async function names(list) {
  const found = [];
  for await (const queue of list) found.push(queue.name);
  return found;
}

function withPolicy(keyName, key) {
  const endpoint = /Endpoint=[^;]*/.exec(connectionString)[0];
  return new ServiceBusAdministrationClient(`${endpoint};SharedAccessKeyName=${keyName};SharedAccessKey=${key}`);
}

function refused(code, statusCode, words = /TrackingId:/) {
  return (error) => {
    assert.equal(error.code, code);
    assert.equal(error.statusCode, statusCode);
    assert.match(error.message, words);
    return true;
  };
}

afterEach(async () => {
  for (const name of await names(admin.listQueues())) await admin.deleteQueue(name);
});

test("a new queue has the defaults of the service", async () => {
  await admin.createQueue("orders");
  const { _response, ...queue } = await admin.getQueue("orders");
  assert.deepEqual(queue, {
    name: "orders",
    forwardTo: undefined,
    userMetadata: undefined,
    lockDuration: "PT30S",
    maxSizeInMegabytes: 1024,
    maxDeliveryCount: 10,
    enablePartitioning: false,
    requiresSession: false,
    enableBatchedOperations: true,
    defaultMessageTimeToLive: UNLIMITED,
    autoDeleteOnIdle: UNLIMITED,
    requiresDuplicateDetection: false,
    duplicateDetectionHistoryTimeWindow: "PT10M",
    deadLetteringOnMessageExpiration: false,
    forwardDeadLetteredMessagesTo: undefined,
    authorizationRules: undefined,
    status: "Active",
    enableExpress: false,
    availabilityStatus: "Available",
    maxMessageSizeInKilobytes: undefined,
  });
});

test("every setting comes back, authorization rules in order with their keys", async () => {
  const settings = {
    lockDuration: "PT45S",
    maxSizeInMegabytes: 2048,
    maxDeliveryCount: 5,
    requiresSession: true,
    enableBatchedOperations: false,
    defaultMessageTimeToLive: "P2D",
    autoDeleteOnIdle: "PT1H",
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT1M30.5S",
    deadLetteringOnMessageExpiration: true,
    userMetadata: "notes <&\"'> ünïcode",
    status: "SendDisabled",
    authorizationRules: [
      {
        claimType: "SharedAccessKey",
        accessRights: ["Manage", "Send", "Listen"],
        keyName: "zebra",
        primaryKey: "dlkp6NXf8UctgMs4OCIZh0l6HD0A3+vHyIPTrUxDpNE=",
        secondaryKey: "UR6yZn4t9mdVFDHFXEXWHFxIELs28adPU5592ZeIloc=",
      },
      {
        claimType: "SharedAccessKey",
        accessRights: ["Listen"],
        keyName: "ant",
        primaryKey: "UR6yZn4t9mdVFDHFXEXWHFxIELs28adPU5592ZeIloc=",
        secondaryKey: "dlkp6NXf8UctgMs4OCIZh0l6HD0A3+vHyIPTrUxDpNE=",
      },
    ],
  };
  await admin.createQueue("full", settings);
  const queue = await admin.getQueue("full");
  for (const [name, value] of Object.entries(settings)) assert.deepEqual(queue[name], value, name);
});

test("names may have slashes and ignore case", async () => {
  await admin.createQueue("Team/Orders.v1-x_y");
  assert.deepEqual(await names(admin.listQueues()), ["Team/Orders.v1-x_y"]);
  assert.equal((await admin.getQueue("team/orders.V1-X_Y")).name, "Team/Orders.v1-x_y");
  assert.equal(await admin.queueExists("TEAM/ORDERS.V1-X_Y"), true);
  assert.equal(await admin.queueExists("team"), false);
});

test("an update replaces what can be replaced", async () => {
  const queue = await admin.createQueue("updated", { userMetadata: "old" });
  await admin.updateQueue({ ...queue, lockDuration: "PT1M", userMetadata: undefined });
  const updated = await admin.getQueue("updated");
  assert.equal(updated.lockDuration, "PT1M");
  assert.equal(updated.userMetadata, undefined);
  assert.equal(updated.defaultMessageTimeToLive, UNLIMITED);
});

test("runtime properties of an unused queue are zero", async () => {
  await admin.createQueue("unused");
  const one = await admin.getQueueRuntimeProperties("unused");
  const listed = [];
  for await (const info of admin.listQueuesRuntimeProperties()) listed.push(info);
  assert.equal(listed.length, 1);
  for (const info of [one, listed[0]]) {
    assert.equal(info.name, "unused");
    assert.equal(info.sizeInBytes, 0);
    for (const kind of ["total", "active", "deadLetter", "scheduled", "transfer", "transferDeadLetter"]) {
      assert.equal(info[`${kind}MessageCount`], 0, kind);
    }
    assert.ok(Math.abs(Date.now() - info.createdAt.getTime()) < 60_000);
    assert.ok(Math.abs(Date.now() - info.modifiedAt.getTime()) < 60_000);
    assert.ok(!Number.isNaN(info.accessedAt.getTime()));
  }
});

test("lists are paged", async () => {
  const created = ["q0", "q1", "q2", "q3", "q4"];
  for (const name of created) await admin.createQueue(name);
  const pages = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 2 })) pages.push(page.map((queue) => queue.name));
  assert.deepEqual(pages, [["q0", "q1"], ["q2", "q3"], ["q4"]]);
  const rest = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 3, continuationToken: "3" })) {
    rest.push(...page.map((queue) => queue.name));
  }
  assert.deepEqual(rest, ["q3", "q4"]);
});

test("the namespace tells of itself", async () => {
  const properties = await admin.getNamespaceProperties();
  assert.equal(properties.name, process.env.TWINBUS_NAMESPACE);
  assert.equal(properties.messagingSku, "Standard");
  assert.ok(!Number.isNaN(properties.createdAt.getTime()));
});

test("a duplicate and a missing queue are told apart", async () => {
  await admin.createQueue("twice");
  await assert.rejects(admin.createQueue("Twice"), refused("MessageEntityAlreadyExistsError", 409));
  await assert.rejects(admin.getQueue("absent"), refused("MessageEntityNotFoundError", 404));
  await assert.rejects(admin.deleteQueue("absent"), refused("MessageEntityNotFoundError", 404));
  const queue = await admin.getQueue("twice");
  await assert.rejects(admin.updateQueue({ ...queue, name: "absent" }), refused("MessageEntityNotFoundError", 404));
});

test("bad names and values are refused with a sentence", async () => {
  for (const name of ["with space", 'quo"ted', "it's", "(x)"]) {
    await assert.rejects(admin.createQueue(name), refused("ServiceError", 400, /not an entity name/), name);
  }
  await assert.rejects(admin.createQueue("q", { lockDuration: "PT6M" }), refused("ServiceError", 400, /LockDuration/));
  await assert.rejects(
    admin.createQueue("q", { maxMessageSizeInKilobytes: 2048 }),
    refused("ServiceError", 400, /MaxMessageSizeInKilobytes/),
  );
  const authorizationRules = Array.from({ length: 13 }, (_, number) => ({
    claimType: "SharedAccessKey",
    accessRights: ["Send"],
    keyName: `r${number}`,
  }));
  await assert.rejects(admin.createQueue("q", { authorizationRules }), refused("ServiceError", 400, /At most 12/));
  const queue = await admin.createQueue("q");
  await assert.rejects(admin.updateQueue({ ...queue, requiresSession: true }), refused("ServiceError", 400, /RequiresSession/));
});

test("topics are not offered yet and none are listed", async () => {
  assert.deepEqual(await names(admin.listTopics()), []);
  await assert.rejects(admin.createTopic("topic"), refused("NotImplemented", 501, /Topics are not offered/));
  assert.equal(await admin.topicExists("topic"), false);
  await assert.rejects(names(admin.listSubscriptions("topic")), refused("MessageEntityNotFoundError", 404));
});

test("a wrong key and an unknown policy are refused", async () => {
  for (const [policy, key] of [["RootManageSharedAccessKey", "wrong"], ["nobody", "wrong"]]) {
    const stranger = withPolicy(policy, key);
    await assert.rejects(stranger.getNamespaceProperties(), refused("UnauthorizedRequestError", 401));
    await assert.rejects(stranger.createQueue("never"), refused("UnauthorizedRequestError", 401));
  }
  assert.deepEqual(await names(admin.listQueues()), []);
});

test("a queue's own policy opens what it grants", async () => {
  const rule = (keyName, accessRights) => ({
    claimType: "SharedAccessKey",
    keyName,
    accessRights,
    primaryKey: `${keyName}-key`,
    secondaryKey: "other",
  });
  const authorizationRules = [rule("manager", ["Manage", "Send", "Listen"]), rule("listener", ["Listen"])];
  await admin.createQueue("own", { authorizationRules });
  await admin.createQueue("foreign");
  const manager = withPolicy("manager", "manager-key");
  assert.equal((await manager.getQueue("own")).name, "own");
  await assert.rejects(manager.getQueue("foreign"), refused("UnauthorizedRequestError", 401));
  await assert.rejects(names(manager.listQueues()), refused("UnauthorizedRequestError", 401));
  const listener = withPolicy("listener", "listener-key");
  await assert.rejects(listener.getQueue("own"), refused("UnauthorizedRequestError", 401, /Manage right/));
});
