-- A table with one folder of files per day and country.
CREATE TABLE visits (
  at TIMESTAMP,
  Day DATE NOT NULL,
  country STRING COMMENT 'two letters'
) PARTITIONED BY (day, COUNTRY) COMMENT 'who came';
DESCRIBE visits;
DESCRIBE DETAIL visits;
SHOW CREATE TABLE visits;
DROP TABLE visits;
