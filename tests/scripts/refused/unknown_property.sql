CREATE TABLE t (id BIGINT, note STRING);
CREATE JOB j PROPERTIES ('max_batch_files' = '1') ON STREAMING
DO INSERT INTO t SELECT * FROM FILES('uri' = 'file://{folder}/in/', 'format' = 'json');
