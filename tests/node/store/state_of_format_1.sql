-- A node's memory as it was written in format 1, before there were restores.
BEGIN TRANSACTION;
CREATE TABLE answers (
    task TEXT NOT NULL, version INTEGER NOT NULL, track TEXT NOT NULL, round INTEGER NOT NULL, part INTEGER NOT NULL,
    request TEXT NOT NULL, answer TEXT NOT NULL, answer_digest TEXT NOT NULL, model TEXT, model_digest TEXT,
    PRIMARY KEY (task, version, track, round, part)
);
INSERT INTO "answers" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',1,'assisted',1,-1,'sha256:1111111111111111111111111111111111111111111111111111111111111111','answer-1','sha256:2222222222222222222222222222222222222222222222222222222222222222','model-1','sha256:1111111111111111111111111111111111111111111111111111111111111111');
CREATE TABLE audit (
    seq integer primary key, time text not null, direction text not null, peer text not null,
    task text not null, version integer not null, round integer not null, kind text not null,
    shape text not null, digest text not null, n_bytes integer not null, note text not null,
    previous text not null, hash text not null
);
INSERT INTO "audit" VALUES(1,'2026-01-02T00:00:00.000000+00:00','own','','',0,0,'joined','','',0,'stay','sha256:0000000000000000000000000000000000000000000000000000000000000000','sha256:cd0c0c42f8a7d0b36ff8481e6bd30710a34bbd2c68acedb8f79d187cb7795c60');
INSERT INTO "audit" VALUES(2,'2026-01-02T00:00:00.000000+00:00','out','clinic','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',1,1,'fitted','','',0,'','sha256:cd0c0c42f8a7d0b36ff8481e6bd30710a34bbd2c68acedb8f79d187cb7795c60','sha256:b7cdcfe9bba9c38ec6802dd38296431ce932927516d7e62ff9bf6fda97d79deb');
CREATE TABLE closed_steps (
    task TEXT NOT NULL, version INTEGER NOT NULL, step INTEGER NOT NULL, PRIMARY KEY (task, version, step)
);
INSERT INTO "closed_steps" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,1);
CREATE TABLE members (
    task TEXT NOT NULL, organization TEXT NOT NULL, status TEXT NOT NULL, PRIMARY KEY (task, organization)
);
INSERT INTO "members" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','lab','invited');
CREATE TABLE predictions (
    peer TEXT NOT NULL, day TEXT NOT NULL, n_rows INTEGER NOT NULL, PRIMARY KEY (peer, day)
);
INSERT INTO "predictions" VALUES('clinic','2026-01-02',7);
CREATE TABLE replies (
    task TEXT NOT NULL, version INTEGER NOT NULL, step INTEGER NOT NULL, place INTEGER NOT NULL,
    organization TEXT NOT NULL, request TEXT NOT NULL, file TEXT, digest TEXT, problem TEXT,
    PRIMARY KEY (task, version, step, place, organization)
);
INSERT INTO "replies" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,1,0,'lab','sha256:1111111111111111111111111111111111111111111111111111111111111111','reply-lab','sha256:1111111111111111111111111111111111111111111111111111111111111111',NULL);
CREATE TABLE tasks (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, label_holder TEXT NOT NULL, terms TEXT NOT NULL,
    options TEXT NOT NULL, status TEXT NOT NULL, active INTEGER NOT NULL DEFAULT 0, made TEXT NOT NULL
);
INSERT INTO "tasks" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','risk','label holder','bank','{"alignment": "plain", "fingerprint": "sha256:0000000000000000000000000000000000000000000000000000000000000000", "fitted": "in-sample", "folds": 1, "format": 1, "label_holder": "bank", "made": "", "name": "risk", "organizations": [], "outputs": 1, "parts": 0, "privacy": "none", "purpose": "", "rounds": 3, "signs": 0, "task": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}','{"seed": 1}','open',0,'2026-01-01');
INSERT INTO "tasks" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','stay','organization','clinic','{"alignment": "plain", "fingerprint": "sha256:0000000000000000000000000000000000000000000000000000000000000000", "fitted": "in-sample", "folds": 1, "format": 1, "label_holder": "clinic", "made": "", "name": "stay", "organizations": [], "outputs": 1, "parts": 0, "privacy": "none", "purpose": "", "rounds": 3, "signs": 0, "task": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}','{}','open',0,'2026-01-02');
CREATE TABLE versions (
    task TEXT NOT NULL, version INTEGER NOT NULL, role TEXT NOT NULL, status TEXT NOT NULL, facts TEXT NOT NULL,
    PRIMARY KEY (task, version, role)
);
INSERT INTO "versions" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,'label holder','begun','{"n_rows": 5, "n_without_label": 1, "started": "2026-01-01", "privacy": {"mechanism": "none"}, "outcome": null, "refit": {}, "leak": null}');
INSERT INTO "versions" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',1,'organization','begun','{"request": "sha256:1111111111111111111111111111111111111111111111111111111111111111", "rows": "sha256:2222222222222222222222222222222222222222222222222222222222222222", "n_rows": 3, "n_fit": 3, "fewest": 2, "without": [2, 1], "n_outputs": 1, "rounds": 2, "further": 0, "fewest_crossed": 0, "organization": "bank", "begun": "", "kinds": {"age": "numbers"}, "keys": null}');
CREATE INDEX audit_by_task on audit (task, seq);
CREATE TRIGGER audit_is_not_updated before update on audit
    begin select raise(abort, 'the audit log is only added to: an entry cannot be changed'); end;
CREATE TRIGGER audit_is_not_deleted before delete on audit
    begin select raise(abort, 'the audit log is only added to: an entry cannot be deleted'); end;
COMMIT;
PRAGMA user_version = 1;
