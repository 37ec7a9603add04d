-- All statements about a job, which no node runs.
CREATE TABLE t (id BIGINT NOT NULL, note STRING);
CREATE JOB load_rows
PROPERTIES ('max_interval' = '5', 's3.max_batch_files' = 10, "__team" = "sales")
ON STREAMING COMMENT 'day and night'
DO INSERT INTO t SELECT id, note FROM FILES('uri' = 'file://{folder}/in/*.json', 'format' = 'json');
SHOW JOBS;
PAUSE JOB WHERE jobname = 'load_rows';
ALTER JOB load_rows PROPERTIES ('max_interval' = '1m', 'offset' = '{"fileName": "{folder}/in/a.json"}');
SHOW JOBS;
SHOW CREATE JOB load_rows;
RESUME JOB WHERE jobname = 'load_rows';
SHOW EPOCHS FOR load_rows;
SHOW EVENTS FOR load_rows;
DROP JOB WHERE jobname = 'load_rows';
DROP JOB IF EXISTS load_rows;
SHOW JOBS;
