CREATE TABLE t (id BIGINT, note STRING);
CREATE JOB j ON STREAMING
DO INSERT INTO t SELECT id, max(note) FROM FILES('uri' = 'file://{folder}/in/', 'format' = 'json')
GROUP BY id;
