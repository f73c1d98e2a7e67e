-- The read models. Each is a fold of the log: dropping this schema and starting the projector brings
-- every row back. Times are milliseconds since the Unix epoch, as the log has them.

CREATE TABLE projection_checkpoint (
    projection text PRIMARY KEY,
    stream text NOT NULL,
    created_ns bigint NOT NULL,
    seq bigint NOT NULL
);

CREATE TABLE settings (
    id smallint PRIMARY KEY CHECK (id = 1),
    at bigint NOT NULL,
    settings jsonb NOT NULL
);

CREATE TABLE evaluation (
    evaluation uuid PRIMARY KEY,
    log_sequence bigint NOT NULL,
    log_index integer NOT NULL,
    flake jsonb NOT NULL,
    label text COLLATE "C" NOT NULL,
    patterns jsonb NOT NULL,
    state text COLLATE "C" NOT NULL,
    waiting jsonb,
    waiting_since bigint,
    requested_at bigint NOT NULL,
    started_at bigint,
    discovered_at bigint,
    finished_at bigint,
    error text,
    flake_source text COLLATE "C",
    locked_url text,
    errors bigint NOT NULL DEFAULT 0,
    warnings bigint NOT NULL DEFAULT 0,
    hand_outs bigint NOT NULL DEFAULT 0,
    -- The entry that queued the latest run; what was said before is of an earlier run.
    run_sequence bigint NOT NULL DEFAULT 0,
    run_index integer NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX evaluation_order ON evaluation (log_sequence, log_index);
CREATE INDEX evaluation_live ON evaluation (state) WHERE finished_at IS NULL;

CREATE TABLE evaluation_message (
    evaluation uuid NOT NULL,
    log_sequence bigint NOT NULL,
    log_index integer NOT NULL,
    ordinal integer NOT NULL,
    level text COLLATE "C" NOT NULL,
    attr_path jsonb,
    text text NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (evaluation, log_sequence, log_index, ordinal)
);

CREATE TABLE derivation (
    build bigint PRIMARY KEY,
    drv_path text COLLATE "C" NOT NULL UNIQUE,
    -- The entry that recorded it; until then only its path is known.
    recorded_sequence bigint,
    recorded_index integer,
    system text COLLATE "C",
    features jsonb,
    outputs jsonb,
    is_fixed_output boolean,
    prefer_local_build boolean,
    pname text
);

CREATE TABLE derivation_dependency (
    build bigint NOT NULL,
    dependency bigint NOT NULL,
    outputs jsonb NOT NULL,
    PRIMARY KEY (build, dependency)
);
CREATE INDEX derivation_dependency_dependents ON derivation_dependency (dependency);

CREATE TABLE build (
    build bigint PRIMARY KEY,
    state text COLLATE "C" NOT NULL,
    assignment bigint,
    attempts bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    wanted_at bigint NOT NULL,
    ready_at bigint,
    started_at bigint,
    finished_at bigint,
    retry_at bigint,
    message text,
    cause bigint,
    outputs jsonb
) WITH (fillfactor = 70);

CREATE TABLE build_attempt (
    assignment bigint PRIMARY KEY,
    build bigint NOT NULL,
    worker uuid NOT NULL,
    assigned_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    outcome text COLLATE "C",
    failure text COLLATE "C",
    message text,
    missing_paths jsonb NOT NULL DEFAULT '[]',
    outputs jsonb,
    substituted boolean,
    build_time_ms bigint,
    elapsed_ms bigint
) WITH (fillfactor = 70);
CREATE INDEX build_attempt_build ON build_attempt (build);

CREATE TABLE entry_point (
    evaluation uuid NOT NULL,
    -- The digest stands for the path in the key, because a path may be longer than a key.
    attr_digest uuid NOT NULL,
    attr_path jsonb NOT NULL,
    attr text COLLATE "C" NOT NULL,
    build bigint NOT NULL,
    PRIMARY KEY (evaluation, attr_digest)
);

CREATE TABLE evaluation_build (
    evaluation uuid NOT NULL,
    build bigint NOT NULL,
    PRIMARY KEY (evaluation, build)
);
CREATE INDEX evaluation_build_build ON evaluation_build (build);

CREATE TABLE pending_job (
    job text COLLATE "C" PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    build bigint,
    evaluation uuid,
    offer bigint NOT NULL,
    system text COLLATE "C",
    features jsonb,
    queued_at bigint NOT NULL,
    ready_at bigint NOT NULL,
    offered_at bigint NOT NULL,
    hand_outs bigint NOT NULL,
    requeue_reason text COLLATE "C",
    log_sequence bigint NOT NULL,
    log_index integer NOT NULL
);

CREATE INDEX pending_job_offer ON pending_job (offer);

CREATE TABLE dispatched_job (
    assignment bigint PRIMARY KEY,
    job text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    build bigint,
    evaluation uuid,
    worker uuid NOT NULL,
    session uuid NOT NULL,
    queued_at bigint NOT NULL,
    ready_at bigint NOT NULL,
    assigned_at bigint NOT NULL,
    accepted_at bigint,
    abort_requested_at bigint,
    abort_cause text COLLATE "C",
    finished_at bigint,
    outcome text COLLATE "C",
    reason text,
    total bigint NOT NULL,
    -- Read whole and never searched: plain JSON costs a third of the binary form to write.
    breakdown json NOT NULL,
    considered bigint NOT NULL,
    runners_up json NOT NULL,
    capabilities_version bigint NOT NULL,
    log_sequence bigint NOT NULL,
    log_index integer NOT NULL
) WITH (fillfactor = 80);
-- Nobody hands out a job twice at a time.
CREATE UNIQUE INDEX dispatched_job_open ON dispatched_job (job) WHERE finished_at IS NULL;
CREATE INDEX dispatched_job_job ON dispatched_job (job);
CREATE INDEX dispatched_job_worker ON dispatched_job (worker) WHERE finished_at IS NULL;

CREATE TABLE worker (
    worker uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    session uuid NOT NULL,
    presence text COLLATE "C" NOT NULL,
    presence_at bigint NOT NULL,
    can_fetch boolean NOT NULL,
    can_eval boolean NOT NULL,
    can_build boolean NOT NULL,
    protocol integer NOT NULL,
    capabilities jsonb,
    capabilities_version bigint NOT NULL DEFAULT 0,
    metrics jsonb,
    metrics_at bigint,
    joined_at bigint NOT NULL,
    idle_evaluate_since bigint,
    idle_build_since bigint,
    rejection text
) WITH (fillfactor = 50);

CREATE TABLE anomaly (
    log_sequence bigint NOT NULL,
    log_index integer NOT NULL,
    ordinal integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    worker uuid,
    job text COLLATE "C",
    assignment bigint,
    reason text NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (log_sequence, log_index, ordinal)
);

CREATE TABLE entry_index (
    subject text COLLATE "C" NOT NULL,
    log_sequence bigint NOT NULL,
    log_index integer NOT NULL,
    PRIMARY KEY (subject, log_sequence, log_index)
);
