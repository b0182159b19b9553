-- A database as schema version 1 wrote it. Frozen: later releases must be able to open it.

CREATE TABLE agent_memory_collections (
    namespace VARCHAR(64) NOT NULL,
    block VARCHAR(64) NOT NULL,
    dimension INTEGER NOT NULL,
    model VARCHAR(255) NOT NULL,
    PRIMARY KEY (namespace, block)
);
CREATE TABLE agent_memory_entries (
    session BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    total BIGINT NOT NULL,
    encoding VARCHAR(255) NOT NULL,
    created_at BIGINT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (session, seq)
);
CREATE TABLE agent_memory_facts (
    namespace VARCHAR(64) NOT NULL,
    block VARCHAR(64) NOT NULL,
    id VARCHAR(255) NOT NULL,
    owner VARCHAR(320) NOT NULL,
    session_id VARCHAR(255) NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, block, id)
);
CREATE TABLE agent_memory_meta (
    name VARCHAR(64) NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE agent_memory_sessions (
    "key" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    namespace VARCHAR(64) NOT NULL,
    session_id VARCHAR(255) NOT NULL,
    user_id VARCHAR(255),
    start BIGINT NOT NULL,
    start_total BIGINT NOT NULL,
    pinned TEXT NOT NULL,
    pinned_tokens BIGINT NOT NULL,
    system TEXT,
    system_at BIGINT NOT NULL,
    system_tokens BIGINT NOT NULL,
    summary TEXT,
    cursors TEXT NOT NULL,
    version BIGINT NOT NULL,
    deleting BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    lease_owner VARCHAR(255),
    lease_until BIGINT NOT NULL,
    CONSTRAINT agent_memory_sessions_id UNIQUE (namespace, session_id)
);
CREATE TABLE agent_memory_vector_scopes (
    namespace VARCHAR(64) NOT NULL,
    block VARCHAR(64) NOT NULL,
    owner VARCHAR(320) NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (namespace, block, owner)
);
CREATE TABLE agent_memory_vectors (
    namespace VARCHAR(64) NOT NULL,
    block VARCHAR(64) NOT NULL,
    id VARCHAR(255) NOT NULL,
    owner VARCHAR(320) NOT NULL,
    session_id VARCHAR(255) NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    body TEXT NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (namespace, block, id)
);
CREATE INDEX agent_memory_facts_owner ON agent_memory_facts (namespace, block, owner, created_at, id);
CREATE INDEX agent_memory_facts_session ON agent_memory_facts (namespace, block, session_id);
CREATE INDEX agent_memory_sessions_user ON agent_memory_sessions (namespace, user_id, session_id);
CREATE INDEX agent_memory_vectors_owner ON agent_memory_vectors (namespace, block, owner);
CREATE INDEX agent_memory_vectors_session ON agent_memory_vectors (namespace, block, session_id);

INSERT INTO agent_memory_meta VALUES ('schema_version', 1);
INSERT INTO agent_memory_sessions
    (key, namespace, session_id, user_id, start, start_total, pinned, pinned_tokens, system,
     system_at, system_tokens, summary, cursors, version, deleting, created_at, lease_owner,
     lease_until)
VALUES
    (7, 'prod', 's-1', 'sarah', 1, 4, '[]', 0, NULL, 0, 0,
     '{"text":"She said hello.","tokens":4,"upto":1,"by":"local","redo_after":0,"redo_text":null}',
     '{"facts":2}', 3, 0, 1700000000000000, NULL, 0);
INSERT INTO agent_memory_entries (session, seq, tokens, total, encoding, created_at, message)
VALUES
    (7, 1, 4, 4, 'o200k_base', 1700000000000001, '{"role":"user","content":"héllo"}'),
    (7, 2, 5, 9, 'o200k_base', 1700000000000002, '{"role":"assistant","content":"hi"}');
INSERT INTO agent_memory_facts
    (namespace, block, id, owner, session_id, first, last, created_at, body)
VALUES
    ('prod', 'facts', 'f-1', 'user:sarah', 's-1', 1, 1, 1700000000000001,
     '{"text":"Sarah says hello.","sources":[1],"metadata":{}}');
INSERT INTO agent_memory_collections (namespace, block, dimension, model)
VALUES ('prod', 'vector', 2, 'm');
INSERT INTO agent_memory_vectors
    (namespace, block, id, owner, session_id, first, last, created_at, body, vector)
VALUES
    ('prod', 'vector', 'v-1', 'user:sarah', 's-1', 1, 1, 1700000000000001,
     '{"text":"hello","sources":[1],"metadata":{}}', x'0000803f00000000');
INSERT INTO agent_memory_vector_scopes (namespace, block, owner, version)
VALUES ('prod', 'vector', 'user:sarah', 5);
