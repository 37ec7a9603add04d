/* Double quotes of Doris, backquotes of Spark, comments; a semicolon inside a string. */
CREATE TABLE `a table` (`select` INT COMMENT "it's; one", b STRING COMMENT 'a "b"'); -- done
DESCRIBE `a table`;
-- A comment of Spark.
CREATE JOB `my job` ON STREAMING DO INSERT INTO `a table` (`select`, B)
SELECT `id`, note /* the note */ FROM S3("uri" = "file://{folder}/in/", "format" = "json") AS s;
SHOW CREATE JOB `my job`;
pause job `my job`;
drop job WHERE jobname = "my job";
drop table default.`A Table`;;
