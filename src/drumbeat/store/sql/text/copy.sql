-- Queries that copy one table. The words @table, @columns, @values and @key are of that table.

-- name: copy_rows
-- All rows in the order of the primary key: the rows of an interrupted copy are the first of these.
SELECT @columns FROM drumbeat.@table ORDER BY @key;

-- name: copy_into
-- Runs for many rows in one transaction.
INSERT INTO drumbeat.@table (@columns) VALUES (@values);

-- name: copy_any
SELECT 1 FROM drumbeat.@table LIMIT 1;

-- name: copy_empty
@empty drumbeat.@table;
