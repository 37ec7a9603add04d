/* Doris' double quotes, Spark's backquotes, comments; a semicolon in a text ends nothing. */
CREATE TABLE `a table` (`select` INT COMMENT "it's; one", b STRING COMMENT 'say "no"'); -- done
DESCRIBE `a table`;
-- and Spark's comments
CREATE JOB `my job` ON STREAMING DO INSERT INTO `a table` (`select`, B)
SELECT `id`, note /* the note */ FROM S3("uri" = "file://{folder}/in/", "format" = "json") AS s;
SHOW CREATE JOB `my job`;
pause job `my job`;
drop job WHERE jobname = "my job";
drop table default.`A Table`;;
