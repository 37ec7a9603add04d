CREATE TABLE t (id BIGINT, note STRING);
CREATE JOB j ON STREAMING
DO INSERT INTO t SELECT * FROM FILES('uri' = 'file://{folder}/in/', 'format' = 'json');
PAUSE JOB j;
ALTER JOB j PROPERTIES ('max_interval' = '10s');
