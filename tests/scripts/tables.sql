-- All statements about a table.
CREATE TABLE Orders (
  id BIGINT NOT NULL COMMENT 'the order''s number',
  price DECIMAL(10, 2),
  tags ARRAY<STRING>,
  buyer STRUCT<name: STRING, city: STRING>,
  placed_at TIMESTAMP
) COMMENT 'all orders';
CREATE TABLE IF NOT EXISTS orders (id INT);
SHOW TABLES;
DESCRIBE orders;
DESCRIBE DETAIL default.orders;
SHOW CREATE TABLE orders;
ALTER TABLE orders SET WATERMARK FOR Placed_At AS placed_at - INTERVAL '1' HOUR;
DESCRIBE DETAIL orders;
SHOW CREATE TABLE orders;
ALTER TABLE orders DROP WATERMARK;
DROP TABLE orders;
DROP TABLE IF EXISTS orders;
SHOW TABLES;
