-- Queries that copy one table. The words @table, @columns, @values and @key are of that table;
-- @run_id is the column that has the id of a run, which is also the id of its pool.

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

-- name: run_rows
-- Some rows of one run.
SELECT @columns FROM drumbeat.@table WHERE @run_id = :run_id ORDER BY @key LIMIT CAST(:limit AS INTEGER) OFFSET CAST(:offset AS INTEGER);

-- name: run_remove
DELETE FROM drumbeat.@table WHERE @run_id = :run_id;
