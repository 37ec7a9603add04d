CREATE TABLE t (id BIGINT, note STRING);
CREATE JOB j ON STREAMING
DO INSERT INTO t SELECT id + 1, upper(note) FROM FILES(
  'uri' = 'file://{folder}/in/', 'format' = 'json'
) WHERE noted > 1;
