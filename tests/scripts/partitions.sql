-- A table whose files lie in one folder for every day and country.
CREATE TABLE visits (
  at TIMESTAMP,
  Day DATE NOT NULL,
  country STRING COMMENT 'two letters'
) PARTITIONED BY (day, COUNTRY) COMMENT 'who came';
DESCRIBE visits;
DESCRIBE DETAIL visits;
SHOW CREATE TABLE visits;
DROP TABLE visits;
