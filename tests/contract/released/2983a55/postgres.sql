SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA twinbus_released;
CREATE SCHEMA twinbus_released_0;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE twinbus_released.counter (
    change bigint NOT NULL,
    next_id bigint NOT NULL,
    version integer NOT NULL
);
CREATE TABLE twinbus_released.entity (
    id bigint NOT NULL,
    key text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    store integer NOT NULL,
    document text NOT NULL,
    change bigint NOT NULL
);
CREATE TABLE twinbus_released.gateway (
    number bigint NOT NULL,
    label text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    beat_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen bigint DEFAULT 0 NOT NULL
);
ALTER TABLE twinbus_released.gateway ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME twinbus_released.gateway_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE twinbus_released.making (
    first bigint NOT NULL,
    past bigint NOT NULL,
    gateway bigint NOT NULL
);
CREATE TABLE twinbus_released.meta (
    key text NOT NULL,
    value text NOT NULL,
    change bigint NOT NULL
);
CREATE TABLE twinbus_released.used (
    entity bigint NOT NULL,
    at_ms bigint NOT NULL
);
CREATE TABLE twinbus_released_0.body (
    id bigint NOT NULL,
    data bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY twinbus_released_0.body ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE twinbus_released_0.duplicate (
    queue bigint NOT NULL,
    message_id text NOT NULL COLLATE pg_catalog."C",
    at_ms bigint NOT NULL
);
CREATE TABLE twinbus_released_0.entity (
    id bigint NOT NULL,
    settings text NOT NULL,
    dropped boolean DEFAULT false NOT NULL,
    counts bigint[] NOT NULL,
    changes bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='20');
CREATE TABLE twinbus_released_0.export (
    writer bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    from_ms bigint NOT NULL,
    to_ms bigint NOT NULL,
    bytes bigint NOT NULL,
    state integer DEFAULT 0 NOT NULL
);
CREATE TABLE twinbus_released_0.gateway (
    number bigint NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
ALTER TABLE twinbus_released_0.gateway ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME twinbus_released_0.gateway_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE twinbus_released_0.hold (
    queue bigint NOT NULL,
    session text NOT NULL COLLATE pg_catalog."C",
    owner bigint NOT NULL,
    holder bigint NOT NULL,
    until bigint NOT NULL
);
CREATE TABLE twinbus_released_0.journal (
    writer bigint NOT NULL,
    id bigint NOT NULL,
    at_ms bigint NOT NULL,
    ops bytea NOT NULL
);
CREATE TABLE twinbus_released_0.lock (
    queue bigint NOT NULL,
    seq bigint NOT NULL,
    id bigint NOT NULL,
    until bigint,
    owner bigint NOT NULL,
    session text COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0.05');
CREATE TABLE twinbus_released_0.message (
    queue bigint NOT NULL,
    seq bigint NOT NULL,
    body bigint NOT NULL,
    size integer NOT NULL,
    state smallint NOT NULL,
    delivery_count integer NOT NULL,
    enqueued_at bigint NOT NULL,
    expires_at bigint,
    due_at bigint,
    session text COLLATE pg_catalog."C",
    message_id text NOT NULL COLLATE pg_catalog."C",
    "overlay" bytea,
    reason text,
    description text
)
WITH (autovacuum_vacuum_scale_factor='0.05');
CREATE TABLE twinbus_released_0.meta (
    key text NOT NULL,
    value text NOT NULL
);
CREATE TABLE twinbus_released_0.name (
    entity bigint NOT NULL,
    path text NOT NULL,
    kind text NOT NULL,
    fragment integer NOT NULL,
    gone_at bigint
);
CREATE TABLE twinbus_released_0.session_state (
    queue bigint NOT NULL,
    session text NOT NULL COLLATE pg_catalog."C",
    state bytea NOT NULL,
    updated_at bigint NOT NULL
);
CREATE TABLE twinbus_released_0.transfer (
    queue bigint NOT NULL,
    seq bigint NOT NULL,
    at_ms bigint NOT NULL
);
INSERT INTO twinbus_released.counter VALUES (10, 7, 1);
INSERT INTO twinbus_released.entity VALUES (1, 'news', 'news', 'topic', 0, '{"name": "news", "default_ttl_ms": 922337203685477, "max_size_mb": 1024, "requires_duplicate_detection": false, "duplicate_window_ms": 600000, "batched_operations": true, "authorization_rules": [], "status": "Active", "support_ordering": true, "auto_delete_on_idle_ms": 922337203685477, "partitioned": false, "express": false, "user_metadata": null, "max_message_size_kb": null, "created_at_ms": 1794976745327, "updated_at_ms": 1794976745327}', 5);
INSERT INTO twinbus_released.entity VALUES (2, 'orders', 'orders', 'queue', 0, '{"name": "orders", "lock_duration_ms": 30000, "max_size_mb": 1024, "requires_duplicate_detection": false, "requires_session": false, "default_ttl_ms": 922337203685477, "dead_letter_on_expiration": false, "duplicate_window_ms": 600000, "max_delivery_count": 10, "batched_operations": true, "authorization_rules": [], "status": "Active", "auto_delete_on_idle_ms": 922337203685477, "partitioned": false, "express": false, "forward_to": null, "forward_dead_letters_to": null, "user_metadata": null, "max_message_size_kb": null, "created_at_ms": 1794976745339, "updated_at_ms": 1794976745339}', 6);
INSERT INTO twinbus_released.entity VALUES (3, 'once', 'once', 'queue', 0, '{"name": "once", "lock_duration_ms": 30000, "max_size_mb": 1024, "requires_duplicate_detection": true, "requires_session": false, "default_ttl_ms": 922337203685477, "dead_letter_on_expiration": false, "duplicate_window_ms": 604800000, "max_delivery_count": 10, "batched_operations": true, "authorization_rules": [], "status": "Active", "auto_delete_on_idle_ms": 922337203685477, "partitioned": false, "express": false, "forward_to": null, "forward_dead_letters_to": null, "user_metadata": null, "max_message_size_kb": null, "created_at_ms": 1794976745346, "updated_at_ms": 1794976745346}', 7);
INSERT INTO twinbus_released.entity VALUES (4, 'talks', 'talks', 'queue', 0, '{"name": "talks", "lock_duration_ms": 30000, "max_size_mb": 1024, "requires_duplicate_detection": false, "requires_session": true, "default_ttl_ms": 922337203685477, "dead_letter_on_expiration": false, "duplicate_window_ms": 600000, "max_delivery_count": 10, "batched_operations": true, "authorization_rules": [], "status": "Active", "auto_delete_on_idle_ms": 922337203685477, "partitioned": false, "express": false, "forward_to": null, "forward_dead_letters_to": null, "user_metadata": null, "max_message_size_kb": null, "created_at_ms": 1794976745351, "updated_at_ms": 1794976745351}', 8);
INSERT INTO twinbus_released.entity VALUES (5, 'news/subscriptions/all', 'news/Subscriptions/all', 'subscription', 0, '{"topic": "news", "name": "all", "lock_duration_ms": 30000, "requires_session": false, "default_ttl_ms": 922337203685477, "dead_letter_on_expiration": false, "dead_letter_on_filter_errors": true, "max_delivery_count": 10, "batched_operations": true, "status": "Active", "auto_delete_on_idle_ms": 922337203685477, "forward_to": null, "forward_dead_letters_to": null, "user_metadata": null, "created_at_ms": 1794976745363, "updated_at_ms": 1794976745363, "rules": [{"name": "$Default", "filter": {"type": "true"}, "created_at_ms": 1794976745363}]}', 9);
INSERT INTO twinbus_released.entity VALUES (6, 'news/subscriptions/some', 'news/Subscriptions/some', 'subscription', 0, '{"topic": "news", "name": "some", "lock_duration_ms": 30000, "requires_session": false, "default_ttl_ms": 922337203685477, "dead_letter_on_expiration": false, "dead_letter_on_filter_errors": true, "max_delivery_count": 10, "batched_operations": true, "status": "Active", "auto_delete_on_idle_ms": 922337203685477, "forward_to": null, "forward_dead_letters_to": null, "user_metadata": null, "created_at_ms": 1794976745366, "updated_at_ms": 1794976745366, "rules": [{"name": "$Default", "filter": {"type": "true"}, "created_at_ms": 1794976745366}]}', 10);
INSERT INTO twinbus_released.meta VALUES ('store-0', 'c0a36b6c672bab5833e79d7be174e7fc', 2);
INSERT INTO twinbus_released.meta VALUES ('created-at-ms', '1794976745317', 3);
INSERT INTO twinbus_released.meta VALUES ('authorization-rules', '[{"name": "RootManageSharedAccessKey", "primary_key": "a-key-of-the-release-that-opens-nothing-else", "secondary_key": "9w4skAGX4AmWLcmkBBhpasm75E7lPYdFoPORX2eNWtg=", "rights": 7}]', 4);
INSERT INTO twinbus_released_0.body VALUES (1099511627778, '\xd27640fa0113000000000000005370c00a054040404070005373c0170da1086465666572726564404040404040404040404040005375a0086465666572726564');
INSERT INTO twinbus_released_0.body VALUES (1099511627779, '\x4908a63a0113000000000000005370c00a054040404070005373c0130da10464656164404040404040404040404040005375a00464656164');
INSERT INTO twinbus_released_0.body VALUES (1099511627780, '\xa8b707310113000000000000005370c00a054040404070005373c0160da10777616974696e67404040404040404040404040005375a00777616974696e67');
INSERT INTO twinbus_released_0.body VALUES (1099511627781, '\x0ad20fee0113000000000000005370c00a054040404070005373c0130da10473616d65404040404040404040404040005375a0056669727374');
INSERT INTO twinbus_released_0.body VALUES (1099511627782, '\x6e03c94c0113000000000000005370c00a054040404070005373c0350da12465613666393163642d383433382d346339352d396431662d666366633465643466666534404040404040404040a101614040005375a00474616c6b');
INSERT INTO twinbus_released_0.body VALUES (-1099511627777, '\x250543930113000000000000005370c00a054040404070005373c0130da1046e657773404040404040404040404040005375a0046e657773');
INSERT INTO twinbus_released_0.duplicate VALUES (12, 'same', 1794976747928);
INSERT INTO twinbus_released_0.entity VALUES (3, '{"lock_duration_ms": 30000, "max_delivery_count": 10, "dead_letter_on_expiry": false, "duplicate_window_ms": 604800000, "requires_session": false, "max_size_bytes": 1073741824, "keyed_duplicates": false}', false, '{2,1,0,0,0,53,1,1,0,0,0,0,0,1,1,0,0,0,0,0,1}', 1);
INSERT INTO twinbus_released_0.entity VALUES (2, '{"lock_duration_ms": 30000, "max_delivery_count": 10, "dead_letter_on_expiry": false, "duplicate_window_ms": 0, "requires_session": false, "max_size_bytes": 1073741824, "keyed_duplicates": false}', false, '{5,1,1,0,0,118,4,4,1,0,0,0,52,1,1,0,0,0,0,0,1}', 5);
INSERT INTO twinbus_released_0.entity VALUES (1, '{"lock_duration_ms": 30000, "max_delivery_count": 2147483647, "dead_letter_on_expiry": false, "duplicate_window_ms": 0, "requires_session": false, "max_size_bytes": 1073741824, "keyed_duplicates": false}', false, '{2,0,0,0,0,0,1,1,0,0,0,0,0,1,1,0,0,0,0,0,1}', 0);
INSERT INTO twinbus_released_0.entity VALUES (5, '{"lock_duration_ms": 30000, "max_delivery_count": 10, "dead_letter_on_expiry": false, "duplicate_window_ms": 0, "requires_session": false, "max_size_bytes": 1073741824, "keyed_duplicates": false}', false, '{2,1,0,0,0,52,1,1,0,0,0,0,0,1,1,0,0,0,0,0,1}', 1);
INSERT INTO twinbus_released_0.entity VALUES (4, '{"lock_duration_ms": 30000, "max_delivery_count": 10, "dead_letter_on_expiry": false, "duplicate_window_ms": 0, "requires_session": true, "max_size_bytes": 1073741824, "keyed_duplicates": false}', false, '{2,1,0,0,0,86,1,1,0,0,0,0,0,1,1,0,0,0,0,0,1}', 2);
INSERT INTO twinbus_released_0.entity VALUES (6, '{"lock_duration_ms": 30000, "max_delivery_count": 10, "dead_letter_on_expiry": false, "duplicate_window_ms": 0, "requires_session": false, "max_size_bytes": 1073741824, "keyed_duplicates": false}', false, '{2,1,0,0,0,52,1,1,0,0,0,0,0,1,1,0,0,0,0,0,1}', 1);
INSERT INTO twinbus_released_0.journal VALUES (1, 1, 1794976745875, '\x5b5b2273656e64222c382c22534253656e6465722d36383436613135652d646238302d346663362d396533302d6661326431353839303862612331222c2264336265313937382d383335662d343733642d626639642d633337393930633334313663222c22222c5b22646f6e65225d2c312c302c35325d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 2, 1794976745878, '\x5b5b22636f6e6e656374222c302c22534253656e6465722d36383436613135652d646238302d346663362d396533302d6661326431353839303862612331222c22222c22222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 3, 1794976745880, '\x5b5b2273656e64222c382c22534253656e6465722d36383436613135652d646238302d346663362d396533302d6661326431353839303862612331222c2264336265313937382d383335662d343733642d626639642d633337393930633334313663222c22222c5b226465666572726564225d2c322c302c36305d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 4, 1794976745883, '\x5b5b2273656e64222c382c22534253656e6465722d36383436613135652d646238302d346663362d396533302d6661326431353839303862612331222c2264336265313937382d383335662d343733642d626639642d633337393930633334313663222c22222c5b2264656164225d2c332c302c35325d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 5, 1794976745886, '\x5b5b2273656e64222c382c22534253656e6465722d36383436613135652d646238302d346663362d396533302d6661326431353839303862612331222c2264336265313937382d383335662d343733642d626639642d633337393930633334313663222c22222c5b2277616974696e67225d2c342c302c35385d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 6, 1794976746378, '\x5b5b22646973636f6e6e656374222c302c22534253656e6465722d36383436613135652d646238302d346663362d396533302d6661326431353839303862612331222c22222c22343731222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 7, 1794976746878, '\x5b5b22636f6e6e656374222c302c22534252656365697665722d66366438393432622d333931352d343737662d393032632d3739663962653533323962342333222c22222c22222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 8, 1794976746903, '\x5b5b2272656365697665222c382c22534252656365697665722d66366438393432622d333931352d343737662d393032632d3739663962653533323962342333222c2263313935326439642d643834642d343832612d626661392d663964383436386533353531222c22222c5b22646f6e65222c226465666572726564222c2264656164225d2c312c302c5b35322c36302c35325d5d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 9, 1794976746908, '\x5b5b22636f6d706c657465222c382c22534252656365697665722d66366438393432622d333931352d343737662d393032632d3739663962653533323962342333222c2263313935326439642d643834642d343832612d626661392d663964383436386533353531222c22222c5b22646f6e65225d2c312c302c35325d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 10, 1794976746912, '\x5b5b226465666572222c382c22534252656365697665722d66366438393432622d333931352d343737662d393032632d3739663962653533323962342333222c2263313935326439642d643834642d343832612d626661392d663964383436386533353531222c22222c5b226465666572726564225d2c322c302c36305d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 11, 1794976746915, '\x5b5b22646561646c6574746572222c382c22534252656365697665722d66366438393432622d333931352d343737662d393032632d3739663962653533323962342333222c2263313935326439642d643834642d343832612d626661392d663964383436386533353531222c22222c5b2264656164225d2c332c302c35325d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 12, 1794976747378, '\x5b5b22646973636f6e6e656374222c302c22534252656365697665722d66366438393432622d333931352d343737662d393032632d3739663962653533323962342333222c22222c22343735222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 13, 1794976747880, '\x5b5b22636f6e6e656374222c302c22534253656e6465722d34653662316535342d656661352d343838632d623234382d3961353433633263633031362336222c22222c22222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 14, 1794976747928, '\x5b5b2273656e64222c31322c22534253656e6465722d34653662316535342d656661352d343838632d623234382d3961353433633263633031362336222c2265373431653831332d343539362d346339342d383037332d303866643165303961366138222c22222c5b2273616d65225d2c312c302c35335d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 15, 1794976748380, '\x5b5b22646973636f6e6e656374222c302c22534253656e6465722d34653662316535342d656661352d343838632d623234382d3961353433633263633031362336222c22222c22343632222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 16, 1794976748882, '\x5b5b22636f6e6e656374222c302c22534253656e6465722d39363731306535632d623934642d346532612d393839662d3233306265633437623730632338222c22222c22222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 17, 1794976748958, '\x5b5b2273656e64222c31362c22534253656e6465722d39363731306535632d623934642d346532612d393839662d3233306265633437623730632338222c2230613039373634642d356263302d343537342d623833642d363939353838343431316564222c22222c5b2265613666393163642d383433382d346339352d396431662d666366633465643466666534225d2c312c302c38362c2261225d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 18, 1794976749384, '\x5b5b22646973636f6e6e656374222c302c22534253656e6465722d39363731306535632d623934642d346532612d393839662d3233306265633437623730632338222c22222c22343634222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 19, 1794976749884, '\x5b5b22636f6e6e656374222c302c22534252656365697665722d34303462666163332d323430372d346539322d626535342d656566613461343964336537233130222c22222c22222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 20, 1794976750385, '\x5b5b227365745f73657373696f6e5f7374617465222c31362c22534252656365697665722d34303462666163332d323430372d346539322d626535342d656566613461343964336537233130222c22222c226f6b222c5b22225d2c302c302c302c22222c315d2c5b22646973636f6e6e656374222c302c22534252656365697665722d34303462666163332d323430372d346539322d626535342d656566613461343964336537233130222c22222c22343639222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 21, 1794976750887, '\x5b5b22636f6e6e656374222c302c22534253656e6465722d35616264613438652d643733352d346661382d616661322d383862376332363464393464233134222c22222c22222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 22, 1794976751032, '\x5b5b2273656e64222c342c22534253656e6465722d35616264613438652d643733352d346661382d616661322d383862376332363464393464233134222c2231623339613534332d396533652d346163372d623266362d373437383336363737343735222c22222c5b226e657773225d2c312c302c35325d2c5b22636f7079222c5b32302c32345d2c22534253656e6465722d35616264613438652d643733352d346661382d616661322d383862376332363464393464233134222c2231623339613534332d396533652d346163372d623266362d373437383336363737343735222c5b342c315d2c5b226e657773225d2c5b312c315d2c302c35325d5d');
INSERT INTO twinbus_released_0.journal VALUES (1, 23, 1794976751387, '\x5b5b22646973636f6e6e656374222c302c22534253656e6465722d35616264613438652d643733352d346661382d616661322d383862376332363464393464233134222c22222c22343636222c5b22225d2c302c302c302c22222c315d5d');
INSERT INTO twinbus_released_0.message VALUES (8, 4, 1099511627780, 58, 0, 0, 1794976745886, NULL, NULL, NULL, 'waiting', NULL, NULL, NULL);
INSERT INTO twinbus_released_0.message VALUES (8, 2, 1099511627778, 60, 1, 0, 1794976745880, NULL, NULL, NULL, 'deferred', NULL, NULL, NULL);
INSERT INTO twinbus_released_0.message VALUES (9, 3, 1099511627779, 52, 0, 0, 1794976745883, NULL, NULL, NULL, 'dead', NULL, 'the reason', NULL);
INSERT INTO twinbus_released_0.message VALUES (12, 1, 1099511627781, 53, 0, 0, 1794976747928, NULL, NULL, NULL, 'same', NULL, NULL, NULL);
INSERT INTO twinbus_released_0.message VALUES (16, 1, 1099511627782, 86, 0, 0, 1794976748958, NULL, NULL, 'a', 'ea6f91cd-8438-4c95-9d1f-fcfc4ed4ffe4', NULL, NULL, NULL);
INSERT INTO twinbus_released_0.message VALUES (20, 1, -1099511627777, 52, 0, 0, 1794976751032, NULL, NULL, NULL, 'news', NULL, NULL, NULL);
INSERT INTO twinbus_released_0.message VALUES (24, 1, -1099511627777, 52, 0, 0, 1794976751032, NULL, NULL, NULL, 'news', NULL, NULL, NULL);
INSERT INTO twinbus_released_0.meta VALUES ('kind', 'messaging-store');
INSERT INTO twinbus_released_0.meta VALUES ('schema_version', '2');
INSERT INTO twinbus_released_0.meta VALUES ('identity', 'c0a36b6c672bab5833e79d7be174e7fc');
INSERT INTO twinbus_released_0.name VALUES (1, 'news', 'topic', 0, NULL);
INSERT INTO twinbus_released_0.name VALUES (2, 'orders', 'queue', 0, NULL);
INSERT INTO twinbus_released_0.name VALUES (3, 'once', 'queue', 0, NULL);
INSERT INTO twinbus_released_0.name VALUES (4, 'talks', 'queue', 0, NULL);
INSERT INTO twinbus_released_0.name VALUES (5, 'news/Subscriptions/all', 'subscription', 0, NULL);
INSERT INTO twinbus_released_0.name VALUES (6, 'news/Subscriptions/some', 'subscription', 0, NULL);
INSERT INTO twinbus_released_0.session_state VALUES (16, 'a', '\x68616c6620776179', 1794976749997);
SELECT pg_catalog.setval('twinbus_released.gateway_number_seq', 1, true);
SELECT pg_catalog.setval('twinbus_released_0.gateway_number_seq', 1, true);
ALTER TABLE ONLY twinbus_released.entity
    ADD CONSTRAINT entity_key_key UNIQUE (key);
ALTER TABLE ONLY twinbus_released.entity
    ADD CONSTRAINT entity_pkey PRIMARY KEY (id);
ALTER TABLE ONLY twinbus_released.gateway
    ADD CONSTRAINT gateway_pkey PRIMARY KEY (number);
ALTER TABLE ONLY twinbus_released.making
    ADD CONSTRAINT making_pkey PRIMARY KEY (first);
ALTER TABLE ONLY twinbus_released.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY twinbus_released.used
    ADD CONSTRAINT used_pkey PRIMARY KEY (entity);
ALTER TABLE ONLY twinbus_released_0.body
    ADD CONSTRAINT body_pkey PRIMARY KEY (id);
ALTER TABLE ONLY twinbus_released_0.duplicate
    ADD CONSTRAINT duplicate_pkey PRIMARY KEY (queue, message_id);
ALTER TABLE ONLY twinbus_released_0.entity
    ADD CONSTRAINT entity_pkey PRIMARY KEY (id);
ALTER TABLE ONLY twinbus_released_0.export
    ADD CONSTRAINT export_pkey PRIMARY KEY (writer, first);
ALTER TABLE ONLY twinbus_released_0.gateway
    ADD CONSTRAINT gateway_pkey PRIMARY KEY (number);
ALTER TABLE ONLY twinbus_released_0.hold
    ADD CONSTRAINT hold_pkey PRIMARY KEY (queue, session);
ALTER TABLE ONLY twinbus_released_0.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (writer, id);
ALTER TABLE ONLY twinbus_released_0.lock
    ADD CONSTRAINT lock_pkey PRIMARY KEY (queue, seq);
ALTER TABLE ONLY twinbus_released_0.message
    ADD CONSTRAINT message_pkey PRIMARY KEY (queue, seq);
ALTER TABLE ONLY twinbus_released_0.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY twinbus_released_0.name
    ADD CONSTRAINT name_pkey PRIMARY KEY (entity);
ALTER TABLE ONLY twinbus_released_0.session_state
    ADD CONSTRAINT session_state_pkey PRIMARY KEY (queue, session);
ALTER TABLE ONLY twinbus_released_0.transfer
    ADD CONSTRAINT transfer_pkey PRIMARY KEY (queue, seq);
CREATE INDEX entity_change ON twinbus_released.entity USING btree (change);
CREATE INDEX duplicate_age ON twinbus_released_0.duplicate USING btree (queue, at_ms);
CREATE INDEX entity_dropped ON twinbus_released_0.entity USING btree (id) WHERE dropped;
CREATE INDEX export_age ON twinbus_released_0.export USING btree (to_ms, bytes) WHERE (state = 1);
CREATE UNIQUE INDEX export_open ON twinbus_released_0.export USING btree (writer) WHERE (state = 0);
CREATE INDEX hold_owner ON twinbus_released_0.hold USING btree (owner);
CREATE INDEX hold_until ON twinbus_released_0.hold USING btree (until);
CREATE INDEX journal_age ON twinbus_released_0.journal USING btree (at_ms);
CREATE INDEX lock_owner ON twinbus_released_0.lock USING btree (owner);
CREATE INDEX lock_session ON twinbus_released_0.lock USING btree (queue, session) WHERE (session IS NOT NULL);
CREATE INDEX lock_until ON twinbus_released_0.lock USING btree (until) WHERE (until IS NOT NULL);
CREATE INDEX message_due ON twinbus_released_0.message USING btree (due_at, queue, seq) WHERE (state = 2);
CREATE INDEX message_expiry ON twinbus_released_0.message USING btree (expires_at) WHERE ((state = 0) AND (expires_at IS NOT NULL));
CREATE INDEX message_session ON twinbus_released_0.message USING btree (queue, session, seq) WHERE (session IS NOT NULL);
CREATE INDEX message_shared ON twinbus_released_0.message USING btree (body) WHERE (body < 0);
CREATE INDEX transfer_age ON twinbus_released_0.transfer USING btree (at_ms);
ALTER TABLE ONLY twinbus_released.making
    ADD CONSTRAINT making_gateway_fkey FOREIGN KEY (gateway) REFERENCES twinbus_released.gateway(number) ON DELETE CASCADE;
