-- A database as schema version 7 wrote it. Frozen: later releases must be able to open it.

CREATE TABLE agent_memory_collections_v7 (
    namespace VARCHAR(64) NOT NULL,
    block VARCHAR(64) NOT NULL,
    dimension INTEGER NOT NULL,
    model VARCHAR(255) NOT NULL,
    PRIMARY KEY (namespace, block)
);
CREATE TABLE agent_memory_entries_v7 (
    session BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    total BIGINT NOT NULL,
    encoding VARCHAR(255) NOT NULL,
    created_at BIGINT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (session, seq)
);
CREATE TABLE agent_memory_facts_v7 (
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
CREATE INDEX agent_memory_facts_owner ON agent_memory_facts_v7 (namespace, block, owner, created_at, id);
CREATE INDEX agent_memory_facts_session ON agent_memory_facts_v7 (namespace, block, session_id);
CREATE TABLE agent_memory_keys_v7 (
    session BIGINT NOT NULL,
    name VARCHAR(64) NOT NULL,
    digest VARCHAR(255) NOT NULL,
    seq BIGINT NOT NULL,
    upto BIGINT NOT NULL,
    total BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (session, name)
);
CREATE INDEX agent_memory_keys_age ON agent_memory_keys_v7 (session, created_at);
CREATE TABLE agent_memory_locks_v7 (
    namespace VARCHAR(64) NOT NULL,
    name VARCHAR(64) NOT NULL,
    owner VARCHAR(255) NOT NULL,
    until BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
);
CREATE TABLE agent_memory_meta (
    name VARCHAR(64) NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE agent_memory_pieces_v7 (
    session BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    part BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (session, seq, part)
);
CREATE TABLE agent_memory_segments_v7 (
    namespace VARCHAR(64) NOT NULL,
    block VARCHAR(64) NOT NULL,
    owner VARCHAR(320) NOT NULL,
    name BIGINT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (namespace, block, owner, name)
);
CREATE TABLE agent_memory_sessions_v7 (
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
    due_at BIGINT,
    expired BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT agent_memory_sessions_id UNIQUE (namespace, session_id)
);
CREATE INDEX agent_memory_sessions_due ON agent_memory_sessions_v7 (namespace, due_at);
CREATE INDEX agent_memory_sessions_user ON agent_memory_sessions_v7 (namespace, user_id, session_id);
CREATE TABLE agent_memory_vector_scopes_v7 (
    namespace VARCHAR(64) NOT NULL,
    block VARCHAR(64) NOT NULL,
    owner VARCHAR(320) NOT NULL,
    version BIGINT NOT NULL,
    catalog TEXT,
    PRIMARY KEY (namespace, block, owner)
);
CREATE TABLE agent_memory_vectors_v7 (
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
    at BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (namespace, block, id)
);
CREATE INDEX agent_memory_vectors_owner ON agent_memory_vectors_v7 (owner, namespace, block, at);
CREATE INDEX agent_memory_vectors_session ON agent_memory_vectors_v7 (session_id, namespace, block);

INSERT INTO agent_memory_collections_v7 VALUES
    ('prod','vector',2,'m');
INSERT INTO agent_memory_entries_v7 VALUES
    (1,2,4,4,'o200k_base',1767323046000006,'{"role":"user","content":"héllo","created_at":"2026-01-02T03:04:06.000006+00:00"}');
INSERT INTO agent_memory_entries_v7 VALUES
    (1,3,5,9,'o200k_base',1767323047000006,'{"role":"assistant","content":"hi","created_at":"2026-01-02T03:04:07.000006+00:00"}');
INSERT INTO agent_memory_entries_v7 VALUES
    (2,1,2,2,'o200k_base',1767323048000006,'{"role":"user","content":"waiting","created_at":"2026-01-02T03:04:08.000006+00:00"}');
INSERT INTO agent_memory_entries_v7 VALUES
    (3,1,2,2,'o200k_base',1767323049000006,'{"role":"user","content":"doomed","created_at":"2026-01-02T03:04:09.000006+00:00"}');
INSERT INTO agent_memory_entries_v7 VALUES
    (4,1,1,1,'o200k_base',1767323050000006,'{"role":"user","content":"later","created_at":"2026-01-02T03:04:10.000006+00:00"}');
INSERT INTO agent_memory_facts_v7 VALUES
    ('prod','facts','f-1','user:sarah','s-1',2,2,1767323045000006,'{"text":"Sarah says hello.","sources":[2],"metadata":{}}');
INSERT INTO agent_memory_keys_v7 VALUES
    (1,'name-1','digest-1',2,3,9,1767323104000002);
INSERT INTO agent_memory_keys_v7 VALUES
    (1,'name-2','digest-2',1,1,4,1767323103000001);
INSERT INTO agent_memory_locks_v7 VALUES
    ('prod','l-1','w1',4102444800000000);
INSERT INTO agent_memory_locks_v7 VALUES
    ('prod','l-2','w1',1767323108000006);
INSERT INTO agent_memory_meta VALUES
    ('schema_version',7);
INSERT INTO agent_memory_segments_v7 VALUES
    ('prod','vector','user:sarah',4403456461119548371,X'414D5347010001000100000002000000070000000800000000000000000000000000000000000000040000000000000000000000000000000400000000000000000000000000000000000000000000005B22762D31225D0000000000000000000000803F0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO agent_memory_sessions_v7 VALUES
    (1,'prod','s-1','sarah',2,4,'[2]',4,'{"role":"system","content":"Be kind.","created_at":"2026-01-02T03:04:05.000006+00:00"}',1767323045000006,3,'{"text":"She said hello.","tokens":4,"upto":2,"by":"local","redo_after":0,"redo_text":null}','{"facts":3,"vector":2}',2,0,1767323045000006,NULL,0,NULL,1);
INSERT INTO agent_memory_sessions_v7 VALUES
    (2,'prod','s-2',NULL,0,0,'[]',0,NULL,0,0,NULL,'{}',1,0,1767323045000006,'w1',1767323108000006,1767323048000006,0);
INSERT INTO agent_memory_sessions_v7 VALUES
    (3,'prod','s-3','tom',0,0,'[]',0,NULL,0,0,NULL,'{}',2,1,1767323045000006,NULL,0,1767323045000006,0);
INSERT INTO agent_memory_sessions_v7 VALUES
    (4,'prod','s-4','tom',0,0,'[]',0,NULL,0,0,NULL,'{}',1,0,1767323045000006,NULL,0,4102444800000000,0);
INSERT INTO agent_memory_vector_scopes_v7 VALUES
    ('prod','vector','user:sarah',3118509837688108118,'[2,0,[[4403456461119548371,1,1,1,144]]]');
INSERT INTO agent_memory_vectors_v7 VALUES
    ('prod','vector','v-1','user:sarah','s-1',2,2,1767323045000006,'{"text":"hello","sources":[2],"metadata":{}}',X'',1);
