CREATE TABLE t (id BIGINT, note STRING);
CREATE JOB j ON STREAMING
DO INSERT INTO t SELECT * FROM FILES('uri' = 'file://{folder}/out/', 'format' = 'json');
