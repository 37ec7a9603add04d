CREATE JOB j ON STREAMING
DO INSERT INTO t SELECT id, note FROM FILES('uri' = 'file://{folder}/in/', 'format' = 'json')
WHERE id > 1;
